// Answers with the paths that programs in Go read, each as a line of hexadecimal digits.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path"
)

func main() {
	http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(
		func(response http.ResponseWriter, request *http.Request) {
			fmt.Fprintf(response, "%x\n%x\n", request.URL.Path, path.Clean(request.URL.Path))
		}))
}
