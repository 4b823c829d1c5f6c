package ginroute

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/diag"
)

// APIServiceProvider is implemented by scheduler plugins that serve endpoints of their own. group is
// /apis/v1/plugins/<plugin name>. It is called once, whatever the number of profiles.
type APIServiceProvider interface {
	RegisterEndpoints(group *gin.RouterGroup)
}

// Mounts collects the endpoints of those plugins that implement APIServiceProvider. An endpoint that is registered
// twice is an error that names plugin, path and owner.
func Mounts(plugins []fwk.Plugin) ([]diag.Mount, error) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	var mounts []diag.Mount
	var errs []error
	for _, p := range plugins {
		if provider, ok := p.(APIServiceProvider); ok {
			m, err := mount(p.Name(), provider)
			mounts, errs = append(mounts, m), append(errs, err)
		}
	}
	return mounts, errors.Join(errs...)
}

// mount gives each plugin an engine of its own, so that no middleware or pattern of one reaches another.
func mount(name string, p APIServiceProvider) (m diag.Mount, err error) {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.NoRoute(func(c *gin.Context) {
		c.JSON(http.StatusNotFound, gin.H{"message": "no such path " + c.Request.URL.Path})
	})
	engine.NoMethod(func(c *gin.Context) {
		c.JSON(http.StatusMethodNotAllowed, gin.H{"message": "method " + c.Request.Method + " is not allowed on " +
			c.Request.URL.Path})
	})
	defer func() { // gin panics on conflicting routes
		if cause := recover(); cause != nil {
			err = fmt.Errorf("plugin %s: register endpoints: %v", name, cause)
		}
	}()
	p.RegisterEndpoints(engine.Group(diag.PluginPrefix + name))
	m = diag.Mount{Plugin: name, Handler: engine}
	for _, r := range engine.Routes() {
		m.Routes = append(m.Routes, diag.Route{Method: r.Method, Path: r.Path})
	}
	return m, nil
}
