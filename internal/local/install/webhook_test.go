package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
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
	testkit.Check(t, err)
	testkit.Check(t, PointWebhooks(got, "https://127.0.0.1:9443", []byte("authority")))
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
	testkit.Check(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPointWebhooksRefusesOneWithoutAService(t *testing.T) {
	t.Parallel()
	objects, err := Parse([]byte(
		`{"kind":"MutatingWebhookConfiguration","apiVersion":"v1","metadata":{"name":"x"},` +
			`"webhooks":[{"name":"a","clientConfig":{"url":"https://elsewhere"}}]}`))
	testkit.Check(t, err)
	if err := PointWebhooks(objects, "https://127.0.0.1:9443", nil); err == nil {
		t.Error("a webhook that leads elsewhere was accepted")
	}
}
