vcl 4.1;
# Varnish with a memory cache; nobody reads its shared-memory log.
backend origin {
    .host = "{origin_host}";
    .port = "{origin_port}";
}
