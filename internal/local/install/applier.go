package install

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const pollInterval = 100 * time.Millisecond

// Applier writes objects by server-side apply.
type Applier struct{ client client.Client }

// NewApplier returns an Applier for the cluster that config leads to.
func NewApplier(config *rest.Config) (*Applier, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.WarningLogger{} // the default one needs a logger that nothing here sets
	c, err := client.New(config, client.Options{FieldOwner: "tenon-up"})
	if err != nil {
		return nil, fmt.Errorf("make client for manifests: %w", err)
	}
	return &Applier{c}, nil
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

// Apply writes the objects in their order. Fields of other owners that the objects name are taken over. An object of a
// namespaced kind that names no namespace goes into the default one.
func (a *Applier) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		namespaced, err := a.client.IsObjectNamespaced(o)
		if err != nil {
			return fmt.Errorf("find the resource of %s: %w", o.GroupVersionKind(), err)
		}
		if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		err = a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Missing returns those of the objects that do not exist.
func (a *Applier) Missing(ctx context.Context, objects []*unstructured.Unstructured) (
	missing []*unstructured.Unstructured, err error,
) {
	for _, o := range objects {
		err := a.client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy())
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, o)
		case err != nil:
			return nil, fmt.Errorf("look for %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return missing, nil
}

// AwaitEstablished waits until the server serves the resources of those objects that are CustomResourceDefinitions.
func (a *Applier) AwaitEstablished(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			err := a.client.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err == nil && established(o), err
		})
		if err != nil {
			return fmt.Errorf("wait for CustomResourceDefinition %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func established(o *unstructured.Unstructured) bool {
	var definition apiextensions.CustomResourceDefinition
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &definition) == nil &&
		apihelpers.IsCRDConditionTrue(&definition, apiextensions.Established)
}

// PointWebhooks makes webhook configurations that name a Service lead to a server on this machine instead: a local
// cluster has no service network. Only clientConfig changes; other objects are left alone.
func PointWebhooks(objects []*unstructured.Unstructured, server string, authority []byte) error {
	kinds := []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
	for _, o := range objects {
		if !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		for _, w := range webhooks {
			if err == nil {
				err = point(w, server, authority)
			}
		}
		if err == nil {
			err = unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
		}
		if err != nil {
			return fmt.Errorf("point %s %s to %s: %w", o.GetKind(), o.GetName(), server, err)
		}
	}
	return nil
}

func point(webhook any, server string, authority []byte) error {
	fields, ok := webhook.(map[string]any)
	if !ok {
		return fmt.Errorf("webhooks[]: want an object, got %T", webhook)
	}
	path, found, err := unstructured.NestedString(fields, "clientConfig", "service", "path")
	if err == nil && !found {
		err = fmt.Errorf("webhook %v names no service path", fields["name"])
	}
	fields["clientConfig"] = map[string]any{
		"url": server + path, "caBundle": base64.StdEncoding.EncodeToString(authority),
	}
	return err
}
