package main

import (
	"context"
	"fmt"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
)

// addTopologyKind installs the CustomResourceDefinitions and waits until they are served, each version from a cache.
// The API server fills that on the first request, and answers it that it is to come back after a second: the first
// scheduler would wait for that, and no other.
func addTopologyKind(ctx context.Context, cfg *rest.Config) error {
	c, err := client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var served []schema.GroupVersionResource
	for _, doc := range deploy.CRDs() {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(doc, crd); err != nil {
			return err
		}
		if _, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd,
			metav1.CreateOptions{}); err != nil {
			return err
		}
		for !established(ctx, c, crd.Name) {
			if !sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s is not served: %w", crd.Name, ctx.Err())
			}
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				served = append(served, schema.GroupVersionResource{
					Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural,
				})
			}
		}
	}
	return each(ctx, len(served), func(ctx context.Context, i int) error {
		_, err := objects.Resource(served[i]).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	})
}

func established(ctx context.Context, c client.Interface, name string) bool {
	crd, err := c.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, cond := range crd.Status.Conditions {
		if cond.Type == apiextensions.Established && cond.Status == apiextensions.ConditionTrue {
			return true
		}
	}
	return false
}
