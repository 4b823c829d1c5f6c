package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// trimmed is a watch whose objects went through a function. watch.Filter is not used: an event that is never received
// blocks its goroutine forever.
type trimmed struct {
	watch.Interface
	out  chan watch.Event
	done chan struct{}
	stop sync.Once
}

func trim(w watch.Interface, read func(*unstructured.Unstructured) runtime.Object) *trimmed {
	t := &trimmed{Interface: w, out: make(chan watch.Event), done: make(chan struct{})}
	go t.forward(read)
	return t
}

func (t *trimmed) forward(read func(*unstructured.Unstructured) runtime.Object) {
	defer close(t.out)
	for e := range t.Interface.ResultChan() {
		if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
			e.Object = read(u)
		}
		select {
		case t.out <- e:
		case <-t.done:
			return
		}
	}
}

func (t *trimmed) ResultChan() <-chan watch.Event { return t.out }

func (t *trimmed) Stop() {
	t.stop.Do(func() { close(t.done) })
	t.Interface.Stop()
}
