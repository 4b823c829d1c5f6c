package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/tenon-project/tenon"
	rapid  = "pgregory.net/rapid"
	seed   = module + "/internal/testkit/seed"
)

// rule says what the packages below a folder may import directly, besides the standard library and their own folder.
type rule struct {
	folder string
	own    []string // folders of this module
	others []string // import path prefixes of other modules; "*" = any
}

// The law: the first rule whose folder holds a package counts.
var law = []rule{
	{folder: "internal/core", own: []string{"internal/core"}},
	{folder: "api/runtime", others: []string{"google.golang.org/grpc", "google.golang.org/protobuf"}},
	{
		folder: "api", own: []string{"api"},
		others: []string{
			"k8s.io/apimachinery", "k8s.io/api", "sigs.k8s.io/json", "sigs.k8s.io/yaml", "go.yaml.in/yaml/v3",
		},
	},
	{folder: "deploy", own: []string{"api"}, others: []string{"k8s.io/apimachinery", "k8s.io/api", "sigs.k8s.io/yaml"}},
	{
		folder: "internal/kube/convert", own: []string{"internal/core", "api"},
		others: []string{
			"k8s.io/apimachinery", "k8s.io/api", "k8s.io/component-helpers/resource", "k8s.io/utils/ptr",
		},
	},
	{folder: "internal/view", own: []string{"internal/core"}},
	{
		folder: "internal/kube/describe", own: []string{"internal/core", "api", "internal/kube", "internal/view"},
		others: []string{"k8s.io/apimachinery", "k8s.io/api", "k8s.io/component-helpers/resource"},
	},
	{
		folder: "internal/kube", own: []string{"internal/core", "api", "internal/kube"},
		others: []string{"k8s.io/apimachinery", "k8s.io/api", "k8s.io/client-go", "k8s.io/klog/v2"},
	},
	{
		folder: "internal/sched",
		own:    []string{"internal/core", "internal/kube", "internal/view", "api", "internal/sched"},
		others: []string{"*"},
	},
	{
		folder: "internal/control", own: []string{"internal/core", "internal/kube", "api", "internal/control"},
		others: []string{"*"},
	},
	{
		folder: "internal/desched",
		own: []string{
			"internal/core", "internal/kube", "internal/view", "api", "internal/desched", "internal/control/serving",
		},
		others: []string{"*"},
	},
	{
		// It stands in the path of every container and has no API client.
		folder: "internal/agent/criproxy",
		own: []string{
			"api/config/runtimeproxy", "api/config/strict", "api/runtime", "api/version", "internal/agent/criproxy",
			"internal/agent/kubeletfile", "internal/agent/socket",
		},
		others: []string{
			"google.golang.org/grpc", "google.golang.org/protobuf", "k8s.io/cri-api", "k8s.io/klog/v2",
			"github.com/go-logr/logr",
			"github.com/spf13/", "golang.org/x/sys", "sigs.k8s.io/yaml",
		},
	},
	{
		folder: "internal/agent",
		own:    []string{"internal/core", "internal/view", "api", "internal/kube/convert", "internal/agent"},
		others: []string{
			"k8s.io/apimachinery", "k8s.io/api", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/component-base",
			"github.com/spf13/", "sigs.k8s.io/yaml", "github.com/prometheus/client_golang", "github.com/go-logr/logr",
			"golang.org/x/sys", "k8s.io/utils", "github.com/containerd/nri", "google.golang.org/grpc",
			"google.golang.org/protobuf",
			"k8s.io/cri-api", "k8s.io/kubelet/pkg/apis", "github.com/pelletier/go-toml/v2",
			"github.com/fsnotify/fsnotify",
		},
	},
	{folder: "internal/sim", own: []string{"internal", "api", "deploy"}, others: []string{"*"}},
	{
		folder: "internal/cli",
		own: []string{
			"internal/core", "internal/view", "internal/kube", "internal/console", "internal/help", "api",
			"internal/cli", "internal/progress",
		},
		others: []string{"*"},
	},
	{folder: "internal/console", own: []string{"web"}},
	{folder: "internal/help", others: []string{"github.com/spf13/cobra"}},
	{folder: "internal/progress", others: []string{"golang.org/x/term"}},
	{folder: "web"},
	{folder: "internal/local", own: []string{"internal", "api", "deploy"}, others: []string{"*"}},
	{folder: "internal/pins", others: []string{"*"}},
	{folder: "internal/testkit/grid", own: []string{"internal/core/topo"}},
	{
		folder: "internal/testkit/object", own: []string{"internal/core/topo", "internal/kube/convert", "api"},
		others: []string{"k8s.io/apimachinery", "k8s.io/api"},
	},
	{folder: "internal/testkit/operator", others: []string{"sigs.k8s.io/yaml"}},
	{folder: "internal/testkit", own: []string{"internal/testkit"}, others: []string{rapid}},
	{folder: "internal/archtest"},
	{folder: "hack", own: []string{"internal/core", "internal/view", "api"}, others: []string{"*"}},
	{folder: "cmd", own: []string{"internal", "api", "deploy"}, others: []string{"*"}},
	{folder: "test", own: []string{"internal", "api", "deploy", "test"}, others: []string{"*"}},
}

// reserved names foreign modules that only some folders may see, directly or through others.
var reserved = map[string][]string{
	"k8s.io/kubernetes/": {
		"internal/sched", "internal/local", "internal/sim", "cmd/tenon", "cmd/tenon-scheduler", "internal/pins", "test",
	},
	"sigs.k8s.io/controller-runtime": {
		"internal/control", "internal/desched", "internal/local", "internal/sim", "cmd/tenon", "cmd/tenon-descheduler",
		"cmd/tenon-manager", "internal/pins", "test",
	},
	// What NRI's packages do when a program starts keeps a part of WebAssembly in it: more than a megabyte.
	"github.com/containerd/nri":  {"internal/agent/transport/nri", "cmd/tenon-agent", "test"},
	"github.com/google/cadvisor": {"internal/local", "cmd/tenon", "test"},
	"github.com/gin-gonic/gin": {
		"internal/sched", "internal/local", "internal/sim", "cmd/tenon", "cmd/tenon-scheduler", "internal/pins", "test",
	},
}

// private folders may be imported by these alone.
var private = map[string][]string{
	"internal/cli":                 {"cmd", "internal/cli", "test"},
	"internal/sim":                 {"cmd", "internal/sim", "test"},
	"internal/local":               {"cmd", "internal/local", "test"},
	"internal/sched/app":           {"cmd", "internal/local", "internal/sched/app", "internal/sim", "test"},
	"internal/sched/core":          {"internal/sched/app", "internal/sched/core", "internal/sim", "test"},
	"internal/control/app":         {"cmd", "internal/local", "internal/control/app", "test"},
	"internal/desched/app":         {"cmd", "internal/local", "internal/desched/app", "test"},
	"internal/agent/app":           {"internal/local", "internal/agent/app", "internal/agent/command", "test"},
	"internal/agent/command":       {"cmd", "internal/agent/command", "test"},
	"internal/agent/criproxy/app":  {"cmd", "internal/agent/criproxy/app", "test"},
	"internal/sched/diag/ginroute": {"internal/sched"},
}

type goPackage struct {
	ImportPath, Dir string
	Standard        bool
	Imports, Deps   []string
	TestImports     []string
	XTestImports    []string
	GoFiles         []string
	TestGoFiles     []string
	XTestGoFiles    []string
	Module          *struct{ Path string }
}

// list lists the packages of the module and what they import, once for all tests.
var list = sync.OnceValues(func() (map[string]goPackage, error) {
	const fields = "ImportPath,Dir,Standard,Imports,Deps,TestImports,XTestImports,GoFiles,TestGoFiles,XTestGoFiles," +
		"Module"
	out, err := goList("-tags", "nomsgpack", "-deps", "-json="+fields, "./...")
	if err != nil {
		return nil, err
	}
	packages := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list output: %w", err)
		}
		packages[p.ImportPath] = p
	}
})

// goList runs go list in the folder of go.mod.
func goList(arguments ...string) ([]byte, error) {
	dir, err := findRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", append([]string{"list"}, arguments...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w", arguments, err)
	}
	return out, nil
}

func load(t *testing.T) map[string]goPackage {
	t.Helper()
	packages, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// folderOf is the path of one of our packages below the module root; ok is false for others.
func folderOf(importPath string) (folder string, ok bool) {
	folder, ok = strings.CutPrefix(importPath, module+"/")
	return folder, ok
}

func below(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

func belowAny(folder string, parents []string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return below(folder, p) })
}

func ruleFor(folder string) (rule, bool) {
	for _, r := range law {
		if below(folder, r.folder) {
			return r, true
		}
	}
	return rule{}, false
}

func (r rule) allows(imported string, packages map[string]goPackage) bool {
	if folder, ok := folderOf(imported); ok {
		return below(folder, r.folder) && r.folder != "internal/core" && len(r.own) == 0 || belowAny(folder, r.own)
	}
	if packages[imported].Standard {
		return true
	}
	return slices.ContainsFunc(r.others, func(prefix string) bool {
		return prefix == "*" || imported == prefix || strings.HasPrefix(imported, strings.TrimSuffix(prefix, "/")+"/")
	})
}

// violations lists every import that breaks the law, one line each.
func violations(packages map[string]goPackage) []string {
	var bad []string
	for importPath, p := range packages {
		folder, ok := folderOf(importPath)
		if !ok {
			continue
		}
		r, ok := ruleFor(folder)
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: no rule names this folder", folder))
			continue
		}
		for _, imported := range p.Imports {
			if imported == "C" || imported == "unsafe" {
				continue
			}
			if below(folder, "internal/core") && below(imported, "sync") {
				bad = append(bad, fmt.Sprintf("%s imports %s: the core has no locks", folder, imported))
			}
			if !r.allows(imported, packages) {
				bad = append(bad, fmt.Sprintf("%s imports %s", folder, imported))
			}
			target, ours := folderOf(imported)
			for hidden, users := range private {
				if ours && below(target, hidden) && !belowAny(folder, users) {
					bad = append(bad, fmt.Sprintf("%s imports %s, which is for %s only", folder, imported,
						strings.Join(users, ", ")))
				}
			}
		}
		for prefix, users := range reserved {
			if belowAny(folder, users) {
				continue
			}
			for _, dep := range p.Deps {
				if strings.HasPrefix(dep+"/", strings.TrimSuffix(prefix, "/")+"/") {
					bad = append(bad, fmt.Sprintf("%s reaches %s", folder, dep))
					break
				}
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

func TestImportsFollowTheLaw(t *testing.T) {
	packages := load(t)
	for _, v := range violations(packages) {
		t.Error(v)
	}
}

// The command line reads the picture that others fill: whoever starts it brings the components.
func TestTheCommandLineReachesNoComponent(t *testing.T) {
	cli, ok := load(t)[module+"/internal/cli"]
	if !ok {
		t.Fatal("no package internal/cli")
	}
	for _, dep := range cli.Deps {
		for _, component := range []string{
			module + "/internal/sched", module + "/internal/agent", module + "/internal/control",
			module + "/internal/local", module + "/internal/sim", "k8s.io/kubernetes",
		} {
			if below(dep, component) {
				t.Errorf("internal/cli reaches %s", dep)
			}
		}
	}
}

// What stands in the path of every container talks to no API server, and stays small.
func TestTheRuntimeProxyHasNoAPIClient(t *testing.T) {
	proxy, ok := load(t)[module+"/cmd/tenon-runtime-proxy"]
	if !ok {
		t.Fatal("no package cmd/tenon-runtime-proxy")
	}
	for _, dep := range proxy.Deps {
		for _, forbidden := range []string{
			"k8s.io/client-go/", "k8s.io/api/", "k8s.io/apimachinery/",
			"k8s.io/component-base/", "net/http/pprof",
		} {
			if strings.HasPrefix(dep+"/", forbidden) {
				t.Errorf("cmd/tenon-runtime-proxy reaches %s", dep)
			}
		}
	}
}

// deps are the packages that each program links, with tags and on a platform.
func deps(t *testing.T, tags, goos string, programs ...string) map[string][]string {
	t.Helper()
	t.Setenv("GOOS", goos)
	arguments := []string{"-tags", tags, "-f", `{{.ImportPath}} {{join .Deps " "}}`}
	for _, p := range programs {
		arguments = append(arguments, "./cmd/"+p)
	}
	out, err := goList(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		linked[path.Base(words[0])] = words[1:]
	}
	return linked
}

// What users of a cluster run has no control plane in it, and can be built for their own machines.
func TestTheCommandLineForClustersHasNoControlPlane(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		linked := deps(t, "nomsgpack,nolocal", goos, "tenon")["tenon"]
		if !slices.Contains(linked, module+"/internal/sim") {
			t.Errorf("%s: simulate is not in it", goos)
		}
		for _, dep := range linked {
			for _, forbidden := range []string{
				"go.etcd.io/etcd/server", "go.etcd.io/bbolt", "k8s.io/kubernetes/cmd/kube-apiserver",
				"k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes/pkg/controlplane",
				"k8s.io/kube-aggregator", "k8s.io/kubectl", module + "/internal/local",
				"github.com/containerd/nri", "github.com/tetratelabs/wazero",
			} {
				if below(dep, forbidden) {
					t.Errorf("%s: the build nolocal reaches %s", goos, dep)
				}
			}
		}
	}
}

// A program that calls methods by their names, as html/template does, keeps every method of every type: a third of
// these programs. What brought it is the page on which gRPC shows its traces.
func TestTheLinkerMayDropMethods(t *testing.T) {
	programs := []string{"tenon-agent", "tenon-descheduler", "tenon-manager", "tenon-runtime-proxy"}
	linked := deps(t, "nomsgpack,grpcnotrace", "linux", programs...)
	for _, program := range programs {
		if len(linked[program]) == 0 {
			t.Errorf("%s links nothing", program)
		}
		for _, dep := range linked[program] {
			if dep == "golang.org/x/net/trace" || dep == "html/template" {
				t.Errorf("%s reaches %s", program, dep)
			}
		}
	}
}

// within are the folders of internal/sched that others there may import; core and app may import all.
var within = map[string][]string{
	"diag": {
		"upstream", "nodenumaresource", "deviceshare", "elasticquota", "coscheduling", "reserving", "loadaware",
		"journal",
	},
	"follow":    {"placement", "nodenumaresource"},
	"upstream":  {"coscheduling", "deviceshare", "diag", "elasticquota", "journal", "placement", "reserving"},
	"placement": {"nodenumaresource", "deviceshare", "reserving", "loadaware", "journal"},
}

func TestPluginsNeverImportEachOther(t *testing.T) {
	packages := load(t)
	for importPath, p := range packages {
		folder, ok := folderOf(importPath)
		knowsAll := below(folder, "internal/sched/app") || below(folder, "internal/sched/core")
		if !ok || !below(folder, "internal/sched") || knowsAll {
			continue
		}
		own := partOf(folder)
		for _, imported := range p.Imports {
			target, ours := folderOf(imported)
			if ours && below(target, "internal/sched") && partOf(target) != own &&
				!slices.Contains(within[partOf(target)], own) {
				t.Errorf("%s imports %s: only core and app know all plugins", folder, imported)
			}
		}
	}
}

// Plugins mount their own endpoints: what serves them reaches no plugin, and not the decision that they share. Of
// kube-scheduler's insides it reaches types and small functions.
func TestDiagnosticsReachNoPlugin(t *testing.T) {
	insides := []string{
		"internal/sched/upstream/config", "internal/sched/upstream/inside", "internal/sched/upstream/loop",
		"internal/sched/upstream/podqueue", "internal/sched/upstream/schedpod",
	}
	found := 0
	for importPath, p := range load(t) {
		if folder, ok := folderOf(importPath); !ok || !below(folder, "internal/sched/diag") {
			continue
		}
		found++
		for _, dep := range p.Deps {
			folder, ours := folderOf(dep)
			if ours && below(folder, "internal/sched") && partOf(folder) != "diag" &&
				!slices.Contains(insides, folder) {
				t.Errorf("%s reaches %s", importPath, folder)
			}
		}
	}
	if found == 0 {
		t.Error("no package internal/sched/diag")
	}
}

// partOf returns the folder directly below internal/sched.
func partOf(folder string) string {
	return strings.SplitN(strings.TrimPrefix(folder, "internal/sched/"), "/", 2)[0]
}

// unseeded lists the packages whose property tests draw other cases in each run.
func unseeded(packages map[string]goPackage) []string {
	var bad []string
	for importPath, p := range packages {
		imports := slices.Concat(p.TestImports, p.XTestImports)
		if _, ours := folderOf(importPath); ours && slices.Contains(imports, rapid) && !slices.Contains(imports, seed) {
			bad = append(bad, importPath)
		}
	}
	slices.Sort(bad)
	return bad
}

func TestPropertyTestsHaveFixedSeeds(t *testing.T) {
	for _, p := range unseeded(load(t)) {
		t.Errorf("the tests of %s import %s and not %s", p, rapid, seed)
	}
	found := unseeded(map[string]goPackage{
		module + "/internal/a": {TestImports: []string{rapid}},
		module + "/internal/b": {TestImports: []string{rapid}, XTestImports: []string{seed}},
		module + "/internal/c": {XTestImports: []string{"slices"}},
	})
	if want := []string{module + "/internal/a"}; !slices.Equal(found, want) {
		t.Errorf("unseeded = %q, want %q", found, want)
	}
}

// The law's own test: a check that cannot fail proves nothing.
func TestTheLawSeesEachKindOfBreach(t *testing.T) {
	cases := map[string]struct {
		packages map[string]goPackage
		want     string
	}{
		"core imports a foreign module": {
			map[string]goPackage{module + "/internal/core/topo": {Imports: []string{"k8s.io/api/core/v1"}}},
			"internal/core/topo imports k8s.io/api/core/v1",
		},
		"core has a lock": {
			map[string]goPackage{
				module + "/internal/core/topo": {Imports: []string{"sync/atomic"}}, "sync/atomic": {Standard: true},
			},
			"internal/core/topo imports sync/atomic: the core has no locks",
		},
		"the agent reaches k8s.io/kubernetes through another package": {
			map[string]goPackage{module + "/internal/agent/app": {Deps: []string{"k8s.io/kubernetes/pkg/features"}}},
			"internal/agent/app reaches k8s.io/kubernetes/pkg/features",
		},
		"a plugin imports the command line": {
			map[string]goPackage{module + "/internal/sched/x": {Imports: []string{module + "/internal/cli"}}},
			"internal/sched/x imports " + module + "/internal/cli",
		},
		"a folder without a rule": {
			map[string]goPackage{module + "/pkg/util": {}},
			"pkg/util: no rule names this folder",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := violations(c.packages)
			if !slices.ContainsFunc(got, func(v string) bool { return strings.HasPrefix(v, c.want) }) {
				t.Errorf("got %q, want one that starts with %q", got, c.want)
			}
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	names := map[string]string{}
	for importPath, p := range load(t) {
		folder, ok := folderOf(importPath)
		if !ok {
			continue
		}
		docs := 0
		name := ""
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil,
				parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			name = f.Name.Name
			if f.Doc == nil {
				continue
			}
			docs++
			if name != "main" && file != "doc.go" && !strings.HasPrefix(file, "zz_generated") {
				t.Errorf("%s: the package comment stands in %s, want doc.go", folder, file)
			}
		}
		if docs != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s: %d files carry a package comment, want 1", folder, docs)
		}
		versioned := strings.HasPrefix(path.Base(folder), "v1")
		if other, taken := names[name]; taken && name != "main" && name != "app" && !versioned {
			t.Errorf("package name %s is used by %s and %s", name, other, folder)
		}
		names[name] = folder
		for _, vague := range []string{"util", "utils", "common", "helper", "helpers", "types", "misc"} {
			if name == vague {
				t.Errorf("%s: package name %q says nothing", folder, name)
			}
		}
	}
}

// The library of NVIDIA's driver needs cgo: builds without the tag nvml must not link it.
func TestDefaultBuildsHaveNoDriverLibrary(t *testing.T) {
	for importPath := range load(t) {
		if strings.HasPrefix(importPath, "github.com/NVIDIA/") {
			t.Errorf("%s is linked without the tag nvml", importPath)
		}
	}
}
