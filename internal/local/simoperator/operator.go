package simoperator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
)

const (
	// byOwner is the index of objects by the UID of their controller.
	byOwner = "owner"
	// pause is how long after an error all objects are looked at again.
	pause = time.Second
)

// Operator creates pods of the objects of the kinds that it installed.
type Operator struct {
	client dynamic.Interface
	table  workload.Table
	kinds  []kind
	// informers are those of kinds, and of what is created of their objects, by group and kind.
	informers map[schema.GroupKind]cache.SharedIndexInformer
	report    func(string)
	reported  map[string]bool
	changed   chan struct{} // holds an element while objects are to be looked at
}

// New returns an operator that has not started. It reports each problem of an object once.
func New(config *rest.Config, report func(string)) (*Operator, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0 // the API server is on this machine
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of the operators: %w", err)
	}
	return newOperator(client, report), nil
}

func newOperator(client dynamic.Interface, report func(string)) *Operator {
	o := &Operator{
		client: client, table: workload.Builtin(), kinds: kinds(), report: report, reported: map[string]bool{},
		informers: map[schema.GroupKind]cache.SharedIndexInformer{}, changed: make(chan struct{}, 1),
	}
	for _, k := range append(kinds(), created()...) {
		i := dynamicinformer.NewFilteredDynamicInformer(client, k.resource(), metav1.NamespaceAll, 0, cache.Indexers{
			byOwner: func(object any) ([]string, error) {
				if ref := metav1.GetControllerOfNoCopy(object.(*unstructured.Unstructured)); ref != nil {
					return []string{string(ref.UID)}, nil
				}
				return nil, nil
			},
		}, nil).Informer()
		_ = i.SetTransform(kube.WithoutManagedFields) // fails only for one that runs
		_, _ = i.AddEventHandler(kube.Handler(o.notice, o.notice))
		o.informers[schema.GroupKind{Group: k.group, Kind: k.kind}] = i
	}
	return o
}

func (o *Operator) notice(*unstructured.Unstructured) {
	select {
	case o.changed <- struct{}{}:
	default: // all objects will be looked at anyway
	}
}

// Run creates and deletes objects until ctx ends.
func (o *Operator) Run(ctx context.Context) {
	var synced []cache.InformerSynced
	for _, i := range o.informers {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.changed:
		case <-again:
		}
		again = nil
		if !o.syncAll(ctx) {
			again = time.After(pause)
		}
	}
}

// syncAll looks at all objects. It reports whether all that was to be done is done.
func (o *Operator) syncAll(ctx context.Context) (done bool) {
	done = true
	for _, k := range o.kinds {
		for _, object := range o.informers[schema.GroupKind{Group: k.group, Kind: k.kind}].GetStore().List() {
			u := object.(*unstructured.Unstructured)
			err := o.sync(ctx, u)
			if err == nil || ctx.Err() != nil {
				continue
			}
			done = false
			text := fmt.Sprintf("%s %s/%s: %v", k.kind, u.GetNamespace(), u.GetName(), err)
			if !o.reported[text] {
				o.reported[text] = true
				o.report(text)
			}
		}
	}
	return done
}

// sync creates what an object lacks, and deletes what it has too much.
func (o *Operator) sync(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetDeletionTimestamp() != nil {
		return nil
	}
	want, err := o.wanted(u)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var errs []error
	for _, c := range want {
		wanted[keyOf(c.Unstructured)] = true
		switch existing := o.find(c.Unstructured); {
		case existing == nil && !c.waits:
			errs = append(errs, o.create(ctx, c))
		case existing != nil && existing.GetKind() == "StatefulSet":
			errs = append(errs, o.scale(ctx, existing, c.Unstructured))
		}
	}
	for _, existing := range o.childrenOf(u) {
		if wanted[keyOf(existing)] || existing.GetDeletionTimestamp() != nil {
			continue
		}
		err := o.resource(existing).Delete(ctx, existing.GetName(), metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationBackground),
			Preconditions:     &metav1.Preconditions{UID: new(existing.GetUID())},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (o *Operator) create(ctx context.Context, c child) error {
	c.SetNamespace(c.owner.GetNamespace())
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(c.owner, c.owner.GroupVersionKind())})
	_, err := o.resource(c.Unstructured).Create(ctx, c.Unstructured, metav1.CreateOptions{FieldManager: "operator"})
	if apierrors.IsAlreadyExists(err) {
		return nil // the cache is behind, or one of the name is being deleted
	}
	return err
}

// scale gives a StatefulSet the replicas that it should have.
func (o *Operator) scale(ctx context.Context, existing, want *unstructured.Unstructured) error {
	replicas := numberAt(want, "spec", "replicas")
	if numberAt(existing, "spec", "replicas") == replicas {
		return nil
	}
	_, err := o.resource(existing).Patch(ctx, existing.GetName(), types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	return err
}

func (o *Operator) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	for _, k := range append(o.kinds, created()...) {
		if k.kind == u.GetKind() && k.group == u.GroupVersionKind().Group {
			return o.client.Resource(k.resource()).Namespace(u.GetNamespace())
		}
	}
	return o.client.Resource(schema.GroupVersionResource{}) // no child is of another kind
}

func keyOf(u *unstructured.Unstructured) string { return u.GetKind() + "/" + u.GetName() }

// find returns the object of the name of a child.
func (o *Operator) find(u *unstructured.Unstructured) *unstructured.Unstructured {
	return kube.Get[unstructured.Unstructured](o.informers[u.GroupVersionKind().GroupKind()],
		u.GetNamespace()+"/"+u.GetName())
}

// childrenOf returns the objects that an object controls, but those of others.
func (o *Operator) childrenOf(u *unstructured.Unstructured) (out []*unstructured.Unstructured) {
	for _, i := range o.informers {
		found, err := i.GetIndexer().ByIndex(byOwner, string(u.GetUID()))
		if err != nil {
			panic(err) // the index exists
		}
		for _, one := range found {
			out = append(out, one.(*unstructured.Unstructured))
		}
	}
	return out
}

func numberAt(u *unstructured.Unstructured, fields ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, fields...)
	return n
}
