vcl 4.1;
# Varnish with a memory cache. Its shared-memory log is not read. added/varnish has what it has in
# addition in some rows.
backend origin {
    .host = "{origin_host}";
    .port = "{origin_port}";
}

{subroutines}
# By default it keeps nothing that expires at once, and never an object without a lifetime.
sub vcl_backend_response {
{backend_response}
    if (beresp.http.Cache-Control == "max-age=0") {
        set beresp.ttl = 1ms;
        set beresp.grace = 0s;
        set beresp.keep = 1h;
        return (deliver);
    }
}
