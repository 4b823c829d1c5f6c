package app

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
	"github.com/tenon-project/tenon/internal/testkit"
)

// greeter is a third-party plugin with an endpoint.
type greeter struct{}

var (
	_ fwk.PostBindPlugin          = greeter{}
	_ ginroute.APIServiceProvider = greeter{}
)

func (greeter) Name() string                                                  { return "Greeter" }
func (greeter) PostBind(context.Context, fwk.CycleState, *corev1.Pod, string) {}
func (greeter) RegisterEndpoints(g *gin.RouterGroup)                          { g.GET("/hello/:who", hello) }

func newGreeter(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return greeter{}, nil
}
func hello(c *gin.Context) { c.String(http.StatusOK, "hello "+c.Param("who")) }

func TestEndpointsOfAnotherPluginAreServedBesideOurs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: " +
		"{leaderElect: false}\n" +
		"clientConnection: {kubeconfig: " + writeKubeconfig(t) + "}\n" +
		"profiles:\n- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Greeter}]}}\n" +
		"- schedulerName: b\n  plugins: {multiPoint: {enabled: [{name: Greeter}]}}\n"
	testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	s := newSchedulerWith(t, []Option{WithPlugin("Greeter", newGreeter)}, "--config="+file)
	s.store.MarkSynced()
	s.core.Tracker.Leading.Store(true)
	diagnostics, err := s.diagnostics(t.Context(), nil)
	testkit.Check(t, err)
	server := httptest.NewServer(s.server(t.Context()).Endpoints(diagnostics))
	t.Cleanup(server.Close)
	settings, err := http.Get(server.URL + "/configz")
	testkit.Check(t, err)
	defer settings.Body.Close()
	if text, err := io.ReadAll(settings.Body); err != nil || !strings.Contains(string(text),
		`{"field":"leaderElection.leaderElect","value":"false","origin":"`+file+`:3"}`) {
		t.Errorf("/configz has no origins: %v\n%s", err, text)
	}
	resp, err := http.Get(server.URL + "/apis/v1/plugins/Greeter/hello/world")
	testkit.Check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != "hello world" {
		t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
	}
}
