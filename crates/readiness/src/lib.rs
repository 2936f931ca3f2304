//! Which descriptors are ready? One contract, one file per backend.
