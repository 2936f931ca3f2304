vcl 4.1;
# Varnish with a memory cache. Its shared-memory log is not read.
backend origin {
    .host = "{origin_host}";
    .port = "{origin_port}";
}
