package ginroute

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/google/go-cmp/cmp"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/testkit"
)

// provider is a plugin as one would write it for Koordinator.
type provider struct {
	name     string
	register func(group *gin.RouterGroup)
	calls    *int
}

func (p provider) Name() string { return p.name }

func (p provider) RegisterEndpoints(group *gin.RouterGroup) {
	if p.calls != nil {
		*p.calls++
	}
	p.register(group)
}

type silent string

func (s silent) Name() string { return string(s) }

func hello(c *gin.Context) { c.String(http.StatusOK, "gang %s", c.Param("name")) }

func TestProvidersAreMountedOnce(t *testing.T) {
	calls := 0
	p := provider{"Coscheduling", func(g *gin.RouterGroup) {
		g.GET("/gang/:name", hello)
		g.POST("/gang/:name", hello)
	}, &calls}
	mounts, err := Mounts([]fwk.Plugin{p, silent("NodeName")})
	testkit.Check(t, err)
	if calls != 1 || len(mounts) != 1 {
		t.Fatalf("got %d calls and %d mounts, want 1 and 1", calls, len(mounts))
	}
	want := []diag.Route{
		{Method: "GET", Path: "/apis/v1/plugins/Coscheduling/gang/:name"},
		{Method: "POST", Path: "/apis/v1/plugins/Coscheduling/gang/:name"},
	}
	if diff := cmp.Diff(want, mounts[0].Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/apis/v1/plugins/Coscheduling/gang/g1": "gang g1",
		"/apis/v1/plugins/Coscheduling/nope":    `{"message":"no such path /apis/v1/plugins/Coscheduling/nope"}`,
	} {
		w := httptest.NewRecorder()
		mounts[0].Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if got, _ := io.ReadAll(w.Result().Body); string(got) != want {
			t.Errorf("GET %s: got %s, want %s", path, got, want)
		}
	}
}

func TestACollisionNamesPluginAndPath(t *testing.T) {
	for name, register := range map[string]func(*gin.RouterGroup){
		"the same path twice":       func(g *gin.RouterGroup) { g.GET("/a/:x", hello); g.GET("/a/:x", hello) },
		"two names of one wildcard": func(g *gin.RouterGroup) { g.GET("/a/:x", hello); g.GET("/a/:y/b", hello) },
	} {
		_, err := Mounts([]fwk.Plugin{provider{name: "Bad", register: register}})
		if err == nil || !strings.Contains(err.Error(), "plugin Bad") ||
			!strings.Contains(err.Error(), "/apis/v1/plugins/Bad/a/") {
			t.Errorf("%s: got %v, want an error that names plugin and path", name, err)
		}
	}
}
