// A server of HTTP/2 that sends content back, and a client that goes on when its content has come
// back: pings.js serve | call PORT PATH MESSAGES. Both measure the round trip as grpc-go does: by a
// PING when content comes, one at a time.
const http2 = require("http2");

function pinger(session, count) {
    let isWaiting = false;
    return () => {
        if (isWaiting || session.destroyed) return;
        isWaiting = session.ping((error) => {
            isWaiting = false;
            count(error);
        });
    };
}

function serve() {
    const server = http2.createServer();
    let pings = 0;
    server.on("session", (session) => {
        session.ping_ = pinger(session, () => pings++);
    });
    server.on("stream", (stream, head) => {
        stream.on("error", () => {});
        stream.respond({ ":status": 200 });
        if (head[":path"].endsWith("/pings")) return stream.end(String(pings));
        stream.on("data", (bytes) => {
            stream.session.ping_();
            stream.write(bytes);
        });
        stream.on("end", () => stream.end());
    });
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

function call(port, path, messages) {
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const fail = (why) => {
        console.log("failed: " + why);
        process.exit(1);
    };
    let pings = 0;
    const ping = pinger(session, (error) => (error ? fail(error) : pings++));
    session.on("error", fail);
    session.on("goaway", (code) => code && fail("GOAWAY " + code));
    const stream = session.request({ ":method": "POST", ":path": path });
    stream.on("error", fail);
    let sent = 0;
    const send = () => {
        sent++;
        stream.write("message " + sent);
    };
    stream.on("data", () => {
        ping();
        if (sent < messages) return send();
        stream.end();
    });
    stream.on("end", () => {
        const asked = session.request({ ":path": path + "/pings" });
        asked.on("error", fail);
        let text = "";
        asked.on("data", (bytes) => (text += bytes));
        asked.on("end", () => {
            session.close();
            console.log(JSON.stringify({ sent, pings, ofServer: Number(text) }));
        });
    });
    send();
}

const [what, port, path, messages] = process.argv.slice(2);
what === "serve" ? serve() : call(port, path, Number(messages));
