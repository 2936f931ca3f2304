// Answers with the paths that programs in Node read, each as a line of hexadecimal digits, after a
// percent sign if the path is not decoded.
const http = require("http");

const hex = (path) => Buffer.from(path, "utf8").toString("hex");

http.createServer((request, response) => {
    const lines = ["%" + hex(request.url.split("?")[0])];
    try {
        const { pathname } = new URL(request.url, "http://origin");
        lines.push("%" + hex(pathname), hex(decodeURIComponent(pathname)));
    } catch {
        // A program that does not catch this answers with an error.
    }
    response.end(lines.map((line) => line + "\n").join(""));
}).listen(Number(process.argv[2]), "127.0.0.1");
