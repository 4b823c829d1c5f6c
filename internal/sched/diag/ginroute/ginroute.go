package ginroute

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/tenon-project/tenon/internal/sched/diag"
)

// APIServiceProvider is implemented by scheduler plugins that serve endpoints of their own. group is
// /apis/v1/plugins/<plugin name>. It is called once, whatever the number of profiles.
type APIServiceProvider interface {
	RegisterEndpoints(group *gin.RouterGroup)
}

// Plugin is a scheduler plugin, as the framework has it.
type Plugin interface{ Name() string }

// Mounts collects the endpoints of those plugins that implement APIServiceProvider. Plugins of equal name, one per
// profile, count once. An endpoint that is registered twice is an error that names plugin, path and owner.
func Mounts(plugins []Plugin) ([]diag.Mount, error) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	plugins = slices.Clone(plugins)
	slices.SortStableFunc(plugins, func(a, b Plugin) int { return strings.Compare(a.Name(), b.Name()) })

	var mounts []diag.Mount
	var errs []error
	for i, p := range plugins {
		provider, ok := p.(APIServiceProvider)
		if !ok || i > 0 && plugins[i-1].Name() == p.Name() {
			continue
		}
		m, err := mount(p.Name(), provider)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		mounts = append(mounts, m)
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
