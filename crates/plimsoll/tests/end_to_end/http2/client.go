// A client of HTTP/2 with Go's standard library. Its arguments are the URL of a server in front of
// an origin with stored responses, and that of one in front of an origin that streams.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

var client http.Client

func main() {
	pem, err := os.ReadFile("ca.pem")
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client.Transport = &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
	}
	cached, streaming := os.Args[1], os.Args[2]

	whole("miss", newRequest("GET", cached+"/cached/300000", nil))
	var hits sync.WaitGroup
	for i := 0; i < 50; i++ {
		hits.Add(1)
		go func() {
			defer hits.Done()
			whole("hit", newRequest("GET", cached+"/cached/300000", nil))
		}()
	}
	hits.Wait()
	content := bytes.Repeat([]byte("x"), 3000000)
	whole("post", newRequest("POST", cached+"/upload", bytes.NewReader(content)))
	whole("head", newRequest("HEAD", cached+"/cached/300000", nil))
	cancelled(newRequest("GET", cached+"/cached/5000000", nil))
	whole("after", newRequest("GET", cached+"/missing", nil))
	inPieces(streaming)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newRequest(method, url string, content io.Reader) *http.Request {
	request, err := http.NewRequest(method, url, content)
	check(err)
	return request
}

func send(request *http.Request) *http.Response {
	response, err := client.Do(request)
	check(err)
	return response
}

// The response in one line.
func whole(what string, request *http.Request) {
	response := send(request)
	body, err := io.ReadAll(response.Body)
	check(err)
	check(response.Body.Close())
	status := response.Header.Get("Cache-Status")
	fmt.Println(what, response.Proto, response.StatusCode, len(body), status)
}

// Resets the stream in the middle of the response.
func cancelled(request *http.Request) {
	ctx, cancel := context.WithCancel(context.Background())
	response := send(request.WithContext(ctx))
	_, err := io.ReadFull(response.Body, make([]byte, 1000))
	check(err)
	cancel()
	check(response.Body.Close())
}

// The response goes on when the origin gets a second request. Each message has a trailer.
func inPieces(url string) {
	// A reader whose length net/http cannot know.
	request := newRequest("POST", url+"/pieces", io.MultiReader(strings.NewReader("content")))
	request.Header.Set("TE", "trailers")
	request.Trailer = http.Header{"X-End": []string{"of request"}}
	response := send(request)
	first := make([]byte, 3)
	_, err := io.ReadFull(response.Body, first)
	check(err)
	whole("second", newRequest("GET", url+"/second", nil))
	rest, err := io.ReadAll(response.Body)
	check(err)
	end := response.Trailer.Get("X-End")
	fmt.Println("pieces", response.Proto, response.StatusCode, string(first), string(rest)+",", end)
}
