package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
)

// absentPause is how often a missing resource is looked for.
const absentPause = 10 * time.Second

// NewClient returns a client that lists and watches resources as JSON.
func NewClient(config *rest.Config) (rest.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.AcceptContentTypes, config.GroupVersion, config.APIPath = runtime.ContentTypeJSON, nil, "/"
	return rest.UnversionedRESTClientFor(config)
}

// source lists and watches a resource, trimming each object before the next one is read. A server without the resource
// looks like one without objects. T has what is read of an object in a list: a tree of everything else would cost three
// times as much.
type source[T any] struct {
	absence  // of all versions
	client   rest.Interface
	versions []schema.GroupVersionResource // the first one is that of the last list

	begin func()                                       // is called before each list; nil for nothing
	keep  func(*T, schema.GroupVersion) runtime.Object // makes a trimmed object, which shares no memory with *T
}

// objects is a list of the objects that a source keeps. Its items are of one type.
type objects struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject returns a list of the same objects: nothing changes them.
func (o *objects) DeepCopyObject() runtime.Object {
	return &objects{TypeMeta: o.TypeMeta, ListMeta: *o.ListMeta.DeepCopy(), Items: slices.Clone(o.Items)}
}

// informerOf returns an informer of a kind, in the first version that the server has. Objects are decoded as a P, from
// which read makes what is kept; they name their kind, group and version. A cluster without the resource looks like one
// without objects until it is installed.
func informerOf[P any, O runtime.Object](client rest.Interface, versions []schema.GroupVersionResource, kind string,
	read func(*P) O,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&source[P]{
		client: client, versions: versions,
		keep: func(p *P, version schema.GroupVersion) runtime.Object {
			one := read(p)
			one.GetObjectKind().SetGroupVersionKind(version.WithKind(kind))
			return one
		},
	}, read(new(P)), 0, cache.Indexers{})
}

// unread is why fields could not be read, by their path.
type unread map[string]string

func (u *unread) add(field, text string) {
	if *u == nil {
		*u = unread{}
	}
	(*u)[field] = text
}

// quantities reads a field, or leaves it out. Those that would take seconds to read are refused.
func (u *unread) quantities(field string, text json.RawMessage) corev1.ResourceList {
	if len(text) == 0 {
		return nil
	}
	list, _, err := annotation.ParseQuantities(string(text))
	if err != nil {
		u.add(field, err.Error())
	}
	return corev1.ResourceList(list)
}

// readWhole reads a field whose type is an int32, or a pointer to one, or leaves it out.
func readWhole[T any](u *unread, field string, text json.RawMessage) (value T) {
	var read T
	switch err := json.Unmarshal(text, &read); {
	case len(text) == 0:
	case err != nil:
		u.add(field, fmt.Sprintf("must be a whole number that fits int32, is %.64s", text))
	default:
		value = read
	}
	return value
}

// IsWatchListSemanticsUnSupported lets reflectors list, which finds a missing resource.
func (*source[T]) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source[T]) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

func (s *source[T]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext returns all objects, in the first version that the server has.
func (s *source[T]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	for range s.versions {
		all, err := s.list(ctx, options)
		if !apierrors.IsNotFound(err) {
			s.absence = absence{}
			return all, err
		}
		s.versions = append(s.versions[1:], s.versions[0])
	}
	s.absence = absence{absent: true}
	return s.newList(), nil
}

func (s *source[T]) newList() *objects {
	if s.begin != nil {
		s.begin()
	}
	return &objects{}
}

// list reads all objects as they arrive. A consistent read comes whole from the server's cache; in pages it would take
// as many times longer as there are pages.
func (s *source[T]) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	all, r := s.newList(), s.versions[0]
	options.Limit, options.ResourceVersion, options.ResourceVersionMatch = 0, "", ""
	text, err := s.client.Get().AbsPath("/apis", r.Group, r.Version, r.Resource).
		SpecificallyVersionedParams(&options, scheme.ParameterCodec, corev1.SchemeGroupVersion).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, text.Close()) }()
	var metadata metav1.ListMeta
	err = readList(text, &metadata, func(item []byte) error {
		one := new(T)
		if err := decode(item, one); err != nil {
			return err
		}
		all.Items = append(all.Items, s.keep(one, r.GroupVersion()))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
	}
	all.ResourceVersion = metadata.ResourceVersion
	return all, nil
}

// decode reads an object, or leaves that to the reader of a RawMessage, which shares the memory of text.
func decode(text []byte, into any) error {
	if raw, ok := into.(*json.RawMessage); ok {
		*raw = text
		return nil
	}
	return json.Unmarshal(text, into)
}

// WatchWithContext watches from where a list ended. For a missing resource it is silent, then orders a new list.
func (s *source[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if w, err := s.watch(); w != nil || err != nil {
		return w, err
	}
	w, err := dynamic.New(s.client).Resource(s.versions[0]).Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return trim(w, func(u *unstructured.Unstructured) runtime.Object {
		var one T
		if text, err := json.Marshal(u.Object); err == nil {
			_ = json.Unmarshal(text, &one) // what does not fit the type is left out
		}
		return s.keep(&one, u.GroupVersionKind().GroupVersion())
	}), nil
}

// trimmed is a watch with trimmed objects. watch.Filter would block forever on an event that is not received.
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
