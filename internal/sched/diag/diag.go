package diag

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tenon-project/tenon/internal/view"
)

// PluginPrefix is where plugins' endpoints live.
const PluginPrefix = "/apis/v1/plugins/"

// New returns the handler of all diagnostics paths. It fails when two plugins want the same path.
func New(c Config) (http.Handler, error) {
	s := &server{
		Config: c, mux: http.NewServeMux(), services: map[string][]string{}, owners: map[string]string{},
		aliases: map[string]string{},
	}
	s.handleGet("/apis/v1/__services__", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, s.services)
	})
	s.handleGet("/apis/v1/nodes/{nodeName}", s.requireNodeAccess(s.node))
	s.handleGet("/apis/v1/explain/pods/{namespace}/{name}", s.ofPod(s.explain))
	s.handleGet("/apis/v1/explain/pods/{namespace}/{name}/hints/{nodeName}", s.requireNodeAccess(s.ofPod(s.hints)))
	s.handleGet("/apis/v1/decisions", s.decisions)
	s.handleGet("/apis/v1/configuration", s.configuration)
	if c.Journal != nil {
		s.handleGet("/apis/v1/journal", s.journal)
	}
	s.handlePost(whatIfPath, s.whatIf)
	for _, p := range c.Plugins {
		if provider, ok := p.(Provider); ok {
			s.provide(p.Name(), provider.Diagnostics())
		}
		if _, ok := p.(DeviceExplainer); ok {
			s.handleGet(PluginPrefix+p.Name()+"/explain", s.ofPod(s.devices))
		}
	}
	for _, m := range c.Mounts {
		if err := s.mount(m); err != nil {
			return nil, err
		}
	}
	for _, fl := range c.Flags.served() {
		s.mux.HandleFunc("/debug/flags/"+fl.name, fl.put(s.audit))
	}
	s.mux.HandleFunc("GET /debug/flags", c.Flags.index)
	s.mux.HandleFunc("GET /debug/flags/{$}", c.Flags.index)
	for _, paths := range s.services {
		slices.Sort(paths)
	}
	return s, nil
}

// server answers the requests of the diagnostics API. Its maps do not change once New has returned.
type server struct {
	Config
	// mux has the handler of each path.
	mux      *http.ServeMux
	services map[string][]string // method → paths that are served, sorted
	owners   map[string]string   // "METHOD path" → the plugin that serves it, "tenon" for paths of no plugin
	aliases  map[string]string   // another name of a plugin → the name under which it is served
}

// ServeHTTP answers what needs the leader with 503 on any other instance.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = s.canonical(r)
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		if !s.Leading() {
			writeRaw(w, http.StatusServiceUnavailable, jsonType, []byte(`{"message": "the instance is not leader"}`))
			return
		}
		if err := s.Ready(); err != nil {
			writeError(w, http.StatusServiceUnavailable, "not ready: %v", err)
			return
		}
	}
	// The mux would answer an unknown path in plain text.
	if _, pattern := s.mux.Handler(r); pattern == "" {
		writeError(w, http.StatusNotFound, "no such path %s; /apis/v1/__services__ lists them", r.URL.Path)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// canonical returns the request with the path that is served: without a trailing slash of __services__, and with the
// name of a plugin in place of an alias. It returns r itself where they are the same.
func (s *server) canonical(r *http.Request) *http.Request {
	path := r.URL.Path
	if path == "/apis/v1/__services__/" {
		path = strings.TrimSuffix(path, "/")
	}
	if rest, ok := strings.CutPrefix(path, PluginPrefix); ok {
		name, tail, _ := strings.Cut(rest, "/")
		if listed, ok := s.aliases[name]; ok {
			path = PluginPrefix + listed + "/" + tail
		}
	}
	if path == r.URL.Path {
		return r
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = path, ""
	return out
}

// handleGet serves GET requests of a pattern, and lists it among the services.
func (s *server) handleGet(pattern string, h http.HandlerFunc) {
	path := strings.NewReplacer("{", ":", "}", "").Replace(pattern)
	s.services[http.MethodGet] = append(s.services[http.MethodGet], path)
	s.owners[http.MethodGet+" "+path] = "tenon"
	s.mux.Handle(pattern, ReadOnly(h, "use GET"))
}

// handlePost serves POST requests of a path, and lists it among the services.
func (s *server) handlePost(path string, h http.HandlerFunc) {
	s.services[http.MethodPost] = append(s.services[http.MethodPost], path)
	s.owners[http.MethodPost+" "+path] = "tenon"
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeError(w, http.StatusMethodNotAllowed, "method %s is not allowed on %s: use POST", r.Method,
				r.URL.Path)
			return
		}
		h(w, r)
	})
}

// provide serves the endpoints of a plugin.
func (s *server) provide(plugin string, service Service) {
	for _, alias := range service.Aliases {
		s.aliases[alias] = plugin
	}
	for _, e := range service.Endpoints {
		serve := func(w http.ResponseWriter, r *http.Request) {
			body := e.Answer(r, s.reader(r))
			if body == nil {
				name := path.Join(r.PathValue("namespace"), r.PathValue("name"))
				writeError(w, http.StatusNotFound, "cannot find %s %s", cmp.Or(e.Names, NamesNode),
					cmp.Or(r.PathValue("nodeName"), name))
				return
			}
			writeJSON(w, body)
		}
		if strings.Contains(e.Path, "{nodeName}") || e.Names == NamesNode {
			serve = s.requireNodeAccess(serve)
		}
		s.handleGet(PluginPrefix+plugin+"/"+e.Path, serve)
	}
}

// ReadOnly passes on GET and HEAD, and questions about other clusters, which change nothing; other methods are answered
// with 405 and the remedy.
func ReadOnly(h http.Handler, remedy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question := r.Method == http.MethodPost && r.URL.Path == whatIfPath
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !question {
			w.Header().Set("Allow", http.MethodGet)
			writeError(w, http.StatusMethodNotAllowed, "method %s is not allowed on %s: %s", r.Method, r.URL.Path,
				remedy)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// mount registers a plugin's endpoints. Its handler gets whatever below its prefix is not ours.
func (s *server) mount(m Mount) error {
	prefix := PluginPrefix + m.Plugin + "/"
	for _, r := range m.Routes {
		if !strings.HasPrefix(r.Path, prefix) {
			return fmt.Errorf("plugin %s: path %s is outside of %s", m.Plugin, r.Path, prefix)
		}
		key := r.Method + " " + r.Path
		if owner, taken := s.owners[key]; taken {
			return fmt.Errorf("plugin %s: %s is already served by %s", m.Plugin, key, owner)
		}
		s.owners[key] = m.Plugin
		s.services[r.Method] = append(s.services[r.Method], r.Path)
	}
	if owner, taken := s.owners[prefix]; taken {
		return fmt.Errorf("plugin %s: %s is already served by %s", m.Plugin, prefix, owner)
	}
	s.owners[prefix] = m.Plugin
	s.mux.Handle(prefix, m.Handler)
	return nil
}

// requireNodeAccess answers with 403 a caller who may not get the Node that the path names.
func (s *server) requireNodeAccess(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := cmp.Or(r.PathValue("nodeName"), r.PathValue("name"))
		if !s.mayGet(r, authorizer.AttributesRecord{Name: name, Resource: "nodes"}) {
			writeError(w, http.StatusForbidden, "node %s cannot be read: get on nodes is missing", name)
			return
		}
		h(w, r)
	}
}

// node answers with what the scheduler's snapshot has of a node.
func (s *server) node(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("nodeName")
	n, ok := s.NodeInfo(name)
	if !ok || n.Node() == nil {
		writeError(w, http.StatusNotFound, "cannot find node %s", name)
		return
	}
	writeJSON(w, nodeStateOf(n, s.reader(r)))
}

// decisions answers with the remembered decisions, about one pod where the query names one, in namespaces that the
// caller may read.
func (s *server) decisions(w http.ResponseWriter, r *http.Request) {
	pod := r.URL.Query().Get("pod")
	if pod != "" {
		if _, ok := namespaceOf(pod); !ok {
			writeError(w, http.StatusBadRequest, "pod=%s is not allowed: use namespace/name", pod)
			return
		}
	}
	mayRead := s.reader(r)
	writeJSON(w, slices.DeleteFunc(s.Decisions.List(pod), func(d view.Decision) bool {
		namespace, _ := namespaceOf(d.Pod)
		return !mayRead(namespace)
	}))
}

// configuration answers with what the process runs with, for callers who may get nodes: it names no pods.
func (s *server) configuration(w http.ResponseWriter, r *http.Request) {
	if !s.mayGet(r, authorizer.AttributesRecord{Resource: "nodes"}) {
		writeError(w, http.StatusForbidden, "the configuration cannot be read: get on nodes is missing")
		return
	}
	answer, err := s.Configuration()
	if err != nil {
		writeError(w, http.StatusInternalServerError, "read the configuration: %v", err)
		return
	}
	writeJSON(w, answer)
}

// journal answers with a file of the journal, compressed, where the caller may read all that it is about.
func (s *server) journal(w http.ResponseWriter, r *http.Request) {
	for _, resource := range []string{"pods", "nodes"} {
		if !s.mayGet(r, authorizer.AttributesRecord{Resource: resource}) {
			writeError(w, http.StatusForbidden, "the journal cannot be read: get on %s of all namespaces is missing",
				resource)
			return
		}
	}
	var answer view.Journal
	wanted := r.URL.Query().Get("file")
	name, earlier, text, err := s.Journal.File(wanted)
	if err == nil && name == "" && wanted != "" {
		writeError(w, http.StatusNotFound, "the journal has no file %q: the oldest are removed", wanted)
		return
	}
	if err == nil {
		answer, err = view.JournalOf(name, text)
		answer.Earlier = earlier
	}
	if err != nil {
		writeError(w, http.StatusInternalServerError, "read the journal: %v", err)
		return
	}
	writeJSON(w, answer)
}

// reader returns a function that reports whether the caller of a request may read the pods of a namespace. It asks the
// API server once for each namespace.
func (s *server) reader(r *http.Request) func(namespace string) bool {
	known := map[string]bool{}
	return func(namespace string) bool {
		may, ok := known[namespace]
		if !ok {
			may = s.mayReadPods(r, namespace)
			known[namespace] = may
		}
		return may
	}
}

// mayReadPods reports whether the caller may get pods in a namespace; an empty one stands for all namespaces.
func (s *server) mayReadPods(r *http.Request, namespace string) bool {
	return s.mayGet(r, authorizer.AttributesRecord{Namespace: namespace, Resource: "pods"})
}

// mayGet asks the API server whether the caller may get an object of the core API. The permission to get the path does
// not suffice: Kubernetes gives every user that of paths under /apis.
func (s *server) mayGet(r *http.Request, object authorizer.AttributesRecord) bool {
	if s.Authorizer == nil {
		return true
	}
	user, ok := request.UserFrom(r.Context())
	if !ok {
		return false
	}
	// An API server that does not answer in time is a refusal.
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	object.User, object.Verb, object.APIVersion, object.ResourceRequest = user, "get", "v1", true
	decision, _, err := s.Authorizer.Authorize(ctx, object)
	return err == nil && decision == authorizer.DecisionAllow
}

// audit logs an accepted change.
func (s *server) audit(r *http.Request, value string) {
	name := "unauthenticated"
	if user, ok := request.UserFrom(r.Context()); ok {
		name = user.GetName()
	}
	s.Log.Info("Accepted a request of the diagnostics API", "method", r.Method, "path", r.URL.Path, "value", value,
		"user", name)
}

// namespaceOf reads namespace/name; ok is false for anything else.
func namespaceOf(key string) (namespace string, ok bool) {
	namespace, name, ok := strings.Cut(key, "/")
	return namespace, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// writeJSON answers with a body. A body that cannot be encoded is an error of the server.
func writeJSON(w http.ResponseWriter, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "encode the answer: %v", err)
		return
	}
	writeRaw(w, http.StatusOK, jsonType, text)
}

// writeError answers with a status and a message, as JSON.
func writeError(w http.ResponseWriter, status int, format string, args ...any) {
	text, _ := json.Marshal(struct { // a string always encodes
		Message string `json:"message"`
	}{fmt.Sprintf(format, args...)})
	writeRaw(w, status, jsonType, text)
}

// jsonType is the content type of all answers but those about flags.
const jsonType = "application/json; charset=utf-8"

// writeRaw writes an answer. Browsers must not guess another content type than the given one.
func writeRaw(w http.ResponseWriter, status int, contentType string, text []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the caller has gone
}
