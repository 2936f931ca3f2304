vcl 4.1;
# Varnish with a cache in memory, in front of the origin.
backend origin {
    .host = "{origin_host}";
    .port = "{origin_port}";
}
