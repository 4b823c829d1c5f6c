package report_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// server is an API server for one kind: it applies with the real rules of server-side apply, on deduced types, whose
// lists are atomic as those of NodeResourceTopology are.
type server struct {
	dynamic.ResourceInterface
	fields *managedfields.FieldManager
	gv     schema.GroupVersion
	kind   string // of the object; "" for NodeResourceTopology

	mu       sync.Mutex
	object   *unstructured.Unstructured
	version  int
	applies  int
	failures int // the next writes that fail
	onWrite  func(*unstructured.Unstructured)
}

// plain answers the questions of the field manager about one untyped kind.
type plain struct{}

func (plain) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}
func (plain) Default(runtime.Object) {}
func (plain) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func newServer(tb testing.TB, gv schema.GroupVersion) *server {
	tb.Helper()
	fields, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), converter{},
		plain{}, plain{},
		gv.WithKind("NodeResourceTopology"), gv, "", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &server{fields: fields, gv: gv}
}

// converter is plain with the rest of runtime.ObjectConvertor.
type converter struct{ plain }

func (converter) Convert(in, out, _ any) error { return errors.New("not needed") }
func (converter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("not needed")
}

func (s *server) resource() schema.GroupResource { return v1alpha2.Resource().GroupResource() }

func (s *server) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured,
	error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.object == nil {
		return nil, apierrors.NewNotFound(s.resource(), name)
	}
	return s.object.DeepCopy(), nil
}

func (s *server) Apply(_ context.Context, name string, applied *unstructured.Unstructured, o metav1.ApplyOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return nil, apierrors.NewServiceUnavailable("the test says so")
	}
	live := s.live(name)
	if seen := applied.GetResourceVersion(); seen != "" && seen != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(s.resource(), name, errors.New("the object has been modified"))
	}
	out, err := s.fields.Apply(live, applied.DeepCopy(), o.FieldManager, o.Force)
	if err != nil {
		return nil, err
	}
	s.applies++
	return s.keep(out.(*unstructured.Unstructured)), nil
}

// Update is a write of another program.
func (s *server) change(manager string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.live("n0")
	changed := live.DeepCopy()
	change(changed)
	out, err := s.fields.Update(live, changed, manager)
	if err != nil {
		panic(fmt.Sprintf("update by %s: %v", manager, err))
	}
	return s.keep(out.(*unstructured.Unstructured))
}

func (s *server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = nil
}

func (s *server) live(name string) *unstructured.Unstructured {
	if s.object != nil {
		return s.object.DeepCopy()
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(s.gv.WithKind(cmp.Or(s.kind, "NodeResourceTopology")))
	u.SetName(name)
	return u
}

func (s *server) keep(u *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	if u.GetUID() == "" {
		u.SetUID(types.UID("uid-" + strconv.Itoa(s.version)))
	}
	s.object = u
	if s.onWrite != nil {
		s.onWrite(u.DeepCopy())
	}
	return u.DeepCopy()
}

// state returns the object and the number of applies.
func (s *server) state() (*unstructured.Unstructured, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.object == nil {
		return nil, s.applies
	}
	return s.object.DeepCopy(), s.applies
}
