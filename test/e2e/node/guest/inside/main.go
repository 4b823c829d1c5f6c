package main

import (
	"fmt"
	"os"
)

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch verb {
	case "serve":
		err = serve()
	case "look":
		err = look(os.Args[2:])
	case "watch":
		err = watch(os.Args[2:])
	default:
		err = fmt.Errorf("verb %q: want serve, look or watch", verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}
