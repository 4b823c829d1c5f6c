// Command kubelet runs the kubelet's own resource managers in process and answers what they decide: topology manager,
// CPU manager, memory manager and device manager of one kubelet minor, and nothing of Tenon. go.mod holds the modules
// of 1.37; another minor is built with its own file: go build -modfile k136.mod -tags k136.
//
// It reads one JSON request a line and writes one JSON answer a line. A start request builds a fresh machine, the
// others change it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

func main() {
	devices, err := isolate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	klog.SetLogger(logr.Discard())
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := serve(os.Stdin, os.Stdout, devices); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers requests until the input ends. Without devices the device manager takes no part.
func serve(in io.Reader, out io.Writer, devices bool) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	w := bufio.NewWriter(out)
	dec, enc := json.NewDecoder(lines), json.NewEncoder(w)
	var n *node
	hello := answer{Kubelet: minor, Started: true}
	if !devices {
		hello.Note = "NOT RUN: device manager"
	}
	if err := enc.Encode(hello); err != nil {
		return err
	}
	for {
		if err := w.Flush(); err != nil {
			return err
		}
		var r request
		if err := dec.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		var a answer
		switch {
		case r.Start != nil:
			if n != nil {
				n.stop()
				n = nil
			}
			fresh, err := start(r.Start, devices)
			if err != nil {
				a.Error = err.Error()
				break
			}
			n = fresh
			a.Started, a.Reserved = true, n.cpu.GetAllCPUs().Difference(n.cpu.GetAllocatableCPUs()).String()
		case n == nil:
			a.Error = "no machine was started"
		case r.Admit != nil:
			a = n.admit(r.Admit)
		case r.Delete != "":
			n.delete(r.Delete)
		case r.Restart:
			if err := n.restart(); err != nil {
				a.Error = err.Error()
				n.stop()
				n = nil
				break
			}
			a.Started = true
		default:
			a.Error = "a request has one of start, admit, delete, restart"
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}
