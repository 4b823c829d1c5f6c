package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const configuration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: tenon}
webhooks:
- name: a.tenon.sh
  failurePolicy: Fail
  clientConfig: {service: {namespace: tenon-system, name: tenon-manager, path: /validate-pod, port: 443}}
- name: b.tenon.sh
  clientConfig: {service: {namespace: tenon-system, name: tenon-manager, path: /validate-node}}
---
apiVersion: v1
kind: Service
metadata: {name: untouched}
spec: {clientConfig: {service: {path: /x}}}
`

func TestPointWebhooksChangesTheClientAlone(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(configuration))
	if err != nil {
		t.Fatal(err)
	}
	if err := PointWebhooks(got, "https://127.0.0.1:9443", []byte("authority")); err != nil {
		t.Fatal(err)
	}
	want, err := Parse([]byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: tenon}
webhooks:
- name: a.tenon.sh
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:9443/validate-pod", caBundle: YXV0aG9yaXR5}
- name: b.tenon.sh
  clientConfig: {url: "https://127.0.0.1:9443/validate-node", caBundle: YXV0aG9yaXR5}
---
apiVersion: v1
kind: Service
metadata: {name: untouched}
spec: {clientConfig: {service: {path: /x}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPointWebhooksRefusesOneWithoutAService(t *testing.T) {
	t.Parallel()
	objects, err := Parse([]byte(
		`{"kind":"MutatingWebhookConfiguration","apiVersion":"v1","metadata":{"name":"x"},` +
			`"webhooks":[{"name":"a","clientConfig":{"url":"https://elsewhere"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := PointWebhooks(objects, "https://127.0.0.1:9443", nil); err == nil {
		t.Error("a webhook that leads elsewhere was accepted")
	}
}
