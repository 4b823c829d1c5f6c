package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const (
	// fieldManager owns the fields that a start writes.
	fieldManager = "tenon-up"
	pollInterval = 100 * time.Millisecond
)

// Applier writes objects by server-side apply.
type Applier struct {
	objects dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// NewApplier returns an Applier for the cluster that config leads to.
func NewApplier(config *rest.Config) (*Applier, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for manifests: %w", err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for manifests: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	return &Applier{objects: objects, mapper: mapper}, nil
}

// Parse reads manifests: each text may hold several documents.
func Parse(texts ...[]byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, text := range texts {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("parse manifest: %w", err)
			}
			if len(o.Object) > 0 {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// Apply writes the objects in their order. Fields of other owners that the objects name are taken over.
func (a *Applier) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		client, err := a.client(o)
		if err != nil {
			return err
		}
		if _, err := client.Apply(ctx, o.GetName(), o,
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// AwaitEstablished waits until the server serves the resources of those objects that are CustomResourceDefinitions.
func (a *Applier) AwaitEstablished(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := a.await(ctx, o, established); err != nil {
			return fmt.Errorf("wait for CustomResourceDefinition %s: %w", o.GetName(), err)
		}
	}
	a.mapper.Reset()
	return nil
}

func (a *Applier) await(ctx context.Context, o *unstructured.Unstructured,
	done func(*unstructured.Unstructured) bool,
) error {
	client, err := a.client(o)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		got, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if done(got) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (a *Applier) client(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", kind, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return a.objects.Resource(mapping.Resource), nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

func established(o *unstructured.Unstructured) bool {
	var definition apiextensions.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &definition); err != nil {
		return false
	}
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensions.Established {
			return c.Status == apiextensions.ConditionTrue
		}
	}
	return false
}
