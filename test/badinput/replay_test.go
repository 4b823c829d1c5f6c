package badinput

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/sim/shadow"
)

// journalOf seals records as a scheduler does.
func journalOf(records ...string) string {
	sum, out := uint32(0), ""
	for i, r := range records {
		kind, rest, _ := strings.Cut(r, " ")
		text := fmt.Sprintf(`{"t":%s,"gen":%d,"ts":"2026-11-26T10:00:00Z",%s}`, kind, i+1, rest)
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), []byte(text))
		out += fmt.Sprintf("%s,\"sum\":\"%08x\"}\n", text[:len(text)-1], sum)
	}
	return out
}

func replayCases() []bad {
	const snapshot = `"snapshot" "snapshot":{"version":2,"build":"v1","config":{"profiles":[{"schedulerName":"s",` +
		`"plugins":{"multiPoint":{"enabled":[{"name":"PrioritySort"},{"name":"DefaultBinder"}]}}}]},"objects":0}`
	in := func(text string, args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "journal.jsonl"), text)
			return replayFails(t, dir, append([]string{filepath.Join(dir, "journal.jsonl")}, args...)...)
		}
	}
	with := func(name, config string, want ...string) bad {
		return bad{name, func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "journal.jsonl"), journalOf(snapshot))
			write(t, filepath.Join(dir, "other.yaml"), "apiVersion: kubescheduler.config.k8s.io/v1\n"+
				"kind: KubeSchedulerConfiguration\n"+config+"\n")
			return replayFails(t, dir, filepath.Join(dir, "journal.jsonl"), "--with", filepath.Join(dir, "other.yaml"))
		}, append(want, "--with: ")}
	}
	event := func(text string) string { return `"event" "event":` + text }
	return []bad{
		{"replay: an empty journal", in(""), []string{"journal.jsonl: line 1: the file is empty"}},
		{"replay: manifests", in("kind: Pod\n"), []string{"journal.jsonl: line 1: not a record of a journal"}},
		{
			"replay: a journal that is cut", in(journalOf(snapshot)[:60]),
			[]string{"journal.jsonl: line 1: the line is cut: the file does not end with a whole record"},
		},
		{
			"replay: a journal of another version",
			in(journalOf(`"snapshot" "snapshot":{"version":3,"build":"v9","config":{},"objects":0}`)),
			[]string{"line 1: snapshot.version: 3 is not supported, want 2", `"v9"`},
		},
		{
			"replay: a journal that was edited",
			in(strings.Replace(journalOf(snapshot), `"build":"v1"`, `"build":"v2"`, 1)),
			[]string{"journal.jsonl: line 1: sum:", "this line, or one before it, was changed or removed"},
		},
		{
			"replay: a configuration without profiles",
			in(journalOf(`"snapshot" "snapshot":{"version":2,"build":"","config":{},"objects":0}`)),
			[]string{"line 1: snapshot.config: profiles: must not be empty"},
		},
		{
			"replay: a profile without plugins",
			in(journalOf(`"snapshot" "snapshot":{"version":2,"build":"","config":{"profiles":[{}]},"objects":0}`)),
			[]string{"line 1: snapshot.config: profiles[0].plugins: must be set"},
		},
		{
			"replay: a scheduler with extenders",
			in(journalOf(`"snapshot" "snapshot":{"version":2,"build":"","config":{"profiles":[{"plugins":{}}],` +
				`"extenders":[{"urlPrefix":"http://a"}]},"objects":0}`)),
			[]string{"line 1: snapshot.config: extenders: what HTTP extenders answered is not recorded"},
		},
		{
			"replay: a journal without its begin", in(journalOf(event(`{"op":"release","kind":"Pod","uid":"a"}`))),
			[]string{"line 1: t: the first record is of type event, want snapshot"},
		},
		{
			"replay: a time that is none", in(journalOf(snapshot), "--until", "noon"),
			[]string{"--until noon is not allowed: use a time such as"},
		},
		{
			"replay: a format that does not exist", in(journalOf(snapshot), "-o", "xml"),
			[]string{"-o xml is not allowed: use table, json"},
		},
		{
			"replay: a time before the journal begins",
			in(journalOf(snapshot), "--until", "2026-11-26T09:00:00Z"),
			[]string{"--until 2026-11-26T09:00:00Z is not allowed", "begins at 2026-11-26T10:00:00Z"},
		},
		{
			"replay: an empty folder", func(t *testing.T) string {
				t.Helper()
				return replayFails(t, t.TempDir(), t.TempDir())
			}, []string{"is a directory"},
		},
		{
			"replay: with no file", in(journalOf(snapshot), "--with", ""),
			[]string{"--with: the name of the file must not"},
		},
		{
			"replay: with a configuration that does not exist", in(journalOf(snapshot), "--with", "/missing.yaml"),
			[]string{"--with: open /missing.yaml: no such file or directory"},
		},
		with(
			"replay: with a plugin that does not exist",
			`profiles: [{schedulerName: s, plugins: {filter: {enabled: [{name: NodeNUMAResourse}]}}}]`,
			`profiles[0].plugins.filter.enabled[0].name: unknown plugin "NodeNUMAResourse", did you mean "NodeNUMARes`,
		),
		with("replay: with a field that does not exist", "profile: []", "other.yaml:3:1: profile: unknown"),
		with(
			"replay: with a plugin that the profile's queue cannot start with",
			`profiles: [{schedulerName: s, plugins: {queueSort: {disabled: [{name: "*"}]}}}]`, "queue sort",
		),
		with("replay: with a manifest", "kind: Pod", "other.yaml:"),
		with(
			"replay: with an extender", `extenders: [{urlPrefix: "http://e", filterVerb: f}]`,
			"extenders: must be empty: what HTTP extenders answer is not recorded",
		),
		with("replay: with two profiles of a name", `profiles: [{schedulerName: s}, {schedulerName: s}]`, "profiles"),
		{
			"replay: a file that does not exist",
			func(t *testing.T) string {
				t.Helper()
				return replayFails(t, t.TempDir(), "missing.jsonl")
			},
			[]string{"missing.jsonl: no such file"},
		},
	}
}

// shadowCases are what the verb refuses before it asks a cluster.
func shadowCases() []bad {
	in := func(config string, args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "kubeconfig"), config)
			args := append(args, "--kubeconfig", filepath.Join(dir, "kubeconfig"))
			return verbFails(t, dir, shadow.NewCommand, args...)
		}
	}
	return []bad{
		{"shadow: a kubeconfig that is a manifest", in("kind: Pod\n"), []string{"find the cluster: ", "--kubeconfig"}},
		{
			"shadow: a context that does not exist", in("kind: Config\napiVersion: v1\n", "--context", "c"),
			[]string{"find the cluster: ", `context "c" does not exist`},
		},
		{"shadow: fewer pods than none", in("", "--count", "-1"), []string{"--count -1 is not allowed"}},
		{"shadow: a format that does not exist", in("", "-o", "xml"), []string{"-o xml is not allowed: use text"}},
	}
}

// replayFails is verbFails of replay.
func replayFails(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return verbFails(t, dir, sim.NewReplayCommand, args...)
}

// verbFails runs a verb, and returns the text of an error with the exit code of bad input.
func verbFails(t *testing.T, dir string, verb func(genericiooptions.IOStreams) *cobra.Command, args ...string,
) (answer string) {
	t.Helper()
	klog.StopFlushDaemon() // of a scheduler before: each program sets its own logger
	unchanged(t, dir, func() {
		var out bytes.Buffer
		c := verb(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		err := c.ExecuteContext(t.Context())
		var code interface{ ExitCode() int }
		if !errors.As(err, &code) || code.ExitCode() != 2 || out.Len() > 0 {
			t.Fatalf("got %v and %q, want an error with exit code 2 alone", err, out.String())
		}
		answer = err.Error()
	})
	return answer
}
