package main

import (
	"context"
	"fmt"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
)

// addTopologyKind installs the CustomResourceDefinitions and waits until they are served.
func addTopologyKind(ctx context.Context, cfg *rest.Config) error {
	c, err := client.NewForConfig(cfg)
	if err != nil {
		return err
	}
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
	}
	return nil
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
