// Node.js with its own HTTP server: one file, and a combined access log through a stream.
const fs = require("fs");
const body = fs.readFileSync("files/obj/1");
const log = fs.createWriteStream("access.log");

function serve(request, response) {
    response.setHeader("Content-Type", "application/octet-stream");
    response.setHeader("Content-Length", body.length);
    response.end(body);
    const [, day, month, year, time] = new Date().toUTCString().split(" ");
    const fields = [request.socket.remoteAddress, day, month, year, time, request.method];
    fields.push(request.url, request.httpVersion, 200, body.length);
    fields.push(request.headers["user-agent"] || "-");
    const format = '%s - - [%s/%s/%s:%s +0000] "%s %s HTTP/%s" %d %d "-" "%s"\n';
    log.write(require("util").format(format, ...fields));
}

require("http").createServer(serve).listen("{port}", "{host}");
