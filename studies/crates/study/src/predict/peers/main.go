// Go's net/http: one file, and a combined access log. The arguments are the address, and how many
// nanoseconds of CPU time each request burns in addition.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	body, err := os.ReadFile("files/obj/1")
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.Create("access.log")
	if err != nil {
		log.Fatal(err)
	}
	burn, err := time.ParseDuration(os.Args[2] + "ns")
	if err != nil {
		log.Fatal(err)
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
		for began := time.Now(); time.Since(began) < burn; {
		}
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		now := time.Now().Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(file, "%s - - [%s] \"%s %s %s\" 200 %d \"-\" %q\n",
			host, now, r.Method, r.RequestURI, r.Proto, len(body), r.UserAgent())
	}
	log.Fatal(http.ListenAndServe(os.Args[1], http.HandlerFunc(serve)))
}
