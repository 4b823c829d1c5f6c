package cli

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestLiveNamesComplete(t *testing.T) {
	t.Parallel()
	served := map[string]string{
		"/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas":           "root team-b",
		"/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas":              "team-a@gpu root team-c@gpu",
		"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/ml/podgroups": "train",
		"/apis/scheduling.koordinator.sh/v1alpha1/reservations":         "web-next",
		"/api/v1/namespaces": "default ml", "/api/v1/nodes": "n0 n1", "/api/v1/namespaces/ml/pods": "train-0 web-0",
		"/apis/apps/v1/namespaces/ml/deployments":                             "web",
		"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups":  "other",
		"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/nowhere/everything": "nothing",
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names, ok := served[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		items := `{"metadata":{"name":"` + strings.ReplaceAll(names, " ", `"}},{"metadata":{"name":"`) + `"}}`
		items = strings.ReplaceAll(items, "@gpu", `","labels":{"quota.scheduling.koordinator.sh/tree-id":"gpu"},"a":"`)
		_, _ = w.Write([]byte(`{"items":[` + items + `]}`))
	}))
	t.Cleanup(s.Close)
	with := kubeconfig(t, s.URL)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"quotas of both groups, each once": {
			[]string{"quota", ""}, "root\nteam-a\nteam-b\nteam-c\nquota/\n:6\n",
		},
		"KIND/NAME of a quota": {
			[]string{"explain", "quota/"}, "quota/root\nquota/team-a\nquota/team-b\nquota/team-c\n:4\n",
		},
		"KIND/NAME of a workload":         {[]string{"explain", "-n", "ml", "deploy/w"}, "deploy/web\n:4\n"},
		"KIND/NAME of a node":             {[]string{"topology", "node/"}, "node/n0\nnode/n1\n:4\n"},
		"KIND NAME":                       {[]string{"explain", "gang", "-n", "ml", ""}, "train\n:4\n"},
		"a kind, and the pods":            {[]string{"explain", "-n", "ml", "po"}, "train-0\nweb-0\npod/\n:6\n"},
		"an unknown kind":                 {[]string{"explain", "nodes/"}, ":4\n"},
		"trees, each once":                {[]string{"quota", "--tree", ""}, "gpu\n:4\n"},
		"a node behind a pod":             {[]string{"explain", "web-0", "--node", ""}, "n0\nn1\n:4\n"},
		"reservations":                    {[]string{"reservation", ""}, "web-next\nreservation/\n:6\n"},
		"gangs of the namespace":          {[]string{"gang", "-n", "ml", ""}, "train\n:4\n"},
		"namespaces":                      {[]string{"top", "-n", ""}, "default\nml\n:4\n"},
		"a second argument":               {[]string{"quota", "root", ""}, ":4\n"},
		"a second gang":                   {[]string{"gang", "-n", "ml", "train", ""}, ":4\n"},
		"what the cluster does not serve": {[]string{"explain", "job/"}, ":4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := slices.Insert(slices.Clone(c.args), 1, "--kubeconfig", with)
			code, out, errOut := run(t, "tenon", append([]string{"__complete"}, args...)...)
			if code != ExitOK || out != c.want {
				t.Errorf("exit code %d, got %q, want %q\n%s", code, out, c.want, errOut)
			}
		})
	}
}

func TestEachShellGetsAScript(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{
		"bash": "complete -o default", "zsh": "#compdef tenon", "fish": "complete -c tenon",
	} {
		if code, out, _ := run(t, "tenon", "completion", shell); code != ExitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, no %q", shell, code, want)
		}
	}
}

func TestKubectlCompletesItsPlugin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ words, name, args string }{
		{"/usr/bin/tenon top -n a", "tenon", "top -n a"},
		{"kubectl-tenon top", "kubectl-tenon", "top"},
		{"/bin/kubectl_complete-tenon top", "kubectl-tenon", "__complete top"},
	} {
		name, args := Invocation(strings.Fields(c.words))
		if name != c.name || strings.Join(args, " ") != c.args {
			t.Errorf("%s: %s %v, want %s %s", c.words, name, args, c.name, c.args)
		}
	}
}
