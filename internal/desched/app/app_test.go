package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/testkit"
)

// free is an address that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	text := []byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndryRun: true\n" +
		"profiles:\n- name: p\n  plugins: {balance: {enabled: [{name: LowNodeLoad}]}}\n  pluginConfig:\n" +
		"  - {name: LowNodeLoad, args: {lowThresholds: {cpu: 45}, highThresholds: {cpu: 75}}}\n")
	settings, err := descheduler.Read("f.yaml", text)
	testkit.Check(t, err)
	o := app.Options{
		Component: serving.Component{
			RESTConfig: &rest.Config{Host: "https://127.0.0.1:1"}, Namespace: "tenon-system", HealthAddress: free(t),
			LeaderElectNamespace: "tenon-system",
		},
		Settings: settings, ServingAddress: free(t),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, o) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await(t, client, "http://"+o.HealthAddress+"/healthz")
	await(t, client, "http://"+o.ServingAddress+"/metrics")
	for path, want := range map[string]string{
		"/metrics":          `tenon_build_info{component="tenon-descheduler",version="`,
		"/configz":          `{"field":"dryRun","value":"true","origin":"f.yaml:3"}`,
		"/apis/v1/makeroom": `503 Service Unavailable {"message":"the instance is not leader"}`,
	} {
		if got := get(t, client, "http://"+o.ServingAddress+path); !strings.Contains(got, want) {
			t.Errorf("%s = %s, want %s in it", path, got, want)
		}
	}
	if got := get(t, client, "http://"+o.HealthAddress+"/readyz"); !strings.Contains(got, "[-]caches failed") {
		t.Errorf("/readyz = %s without an API server", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// await asks until the answer is 200.
func await(t *testing.T, client *http.Client, url string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s did not become ready", url)
		}
	}
}

// get returns the status and the body.
func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	testkit.Check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testkit.Check(t, err)
	return resp.Status + " " + string(body)
}

func TestRunRefusesBadOptions(t *testing.T) {
	t.Parallel()
	const pair = "the serving address needs a certificate file and a key file in one folder"
	for name, c := range map[string]struct {
		change func(*app.Options)
		want   string
	}{
		"no port": {
			func(o *app.Options) { o.ServingAddress = "127.0.0.1" },
			"serving address: address 127.0.0.1: missing port in address",
		},
		"a key without a certificate": {func(o *app.Options) { o.CertFile = "" }, pair},
		"a certificate without a key": {func(o *app.Options) { o.KeyFile = "" }, pair},
		"a key elsewhere":             {func(o *app.Options) { o.KeyFile = "/b/tls.key" }, pair},
		"no kubeconfig there": {
			func(o *app.Options) { o.RESTConfig, o.Kubeconfig = nil, "/does/not/exist" },
			"find the API server: stat /does/not/exist: no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := app.Options{
				Component:      serving.Component{RESTConfig: &rest.Config{}},
				ServingAddress: "127.0.0.1:1", CertFile: "/a/tls.crt", KeyFile: "/a/tls.key",
			}
			c.change(&o)
			if err := app.Run(t.Context(), o); err == nil || err.Error() != c.want {
				t.Errorf("Run = %v, want %s", err, c.want)
			}
		})
	}
}
