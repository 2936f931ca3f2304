//! What the fuzz targets run and the stable tests replay: see `fuzz/`.
