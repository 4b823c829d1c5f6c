package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/view"
)

func newConsole(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "console",
		Short: "Serve pages that show the cluster in a browser",
		Long: `Serve pages that show the cluster in a browser: what waits and why, nodes down to the thread
and the GPU, quotas, gangs, and what would happen if the cluster were another one.

The pages show what you may read with your kubeconfig, and change nothing. The address is printed with a token, and is
valid for 12 hours, for browsers on this machine. Ctrl-C ends it.`,
		Example: `  # on any free port
  tenon console

  # always at the same address
  tenon console --listen 127.0.0.1:8443

  # of another cluster of the kubeconfig
  tenon console --context production`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := console.CheckAddress(address); err != nil {
				return usagef("--listen %w", err)
			}
			if _, err := connect(flags); err != nil {
				return err
			}
			started, err := console.Start(c.Context(), address, consoleSource{flags})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(streams.Out, "console %s\n", started.Address)
			return started.Wait()
		},
	}
	c.Flags().StringVar(&address, "listen", "127.0.0.1:0", "loopback `address` to serve on")
	return c
}

// StartConsole serves the console of the cluster of a kubeconfig until ctx ends, and returns its address.
func StartConsole(ctx context.Context, kubeconfig, address string) (string, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &kubeconfig
	started, err := console.Start(ctx, address, consoleSource{flags})
	if err != nil {
		return "", err
	}
	return started.Address, nil
}

// consoleSource answers the console with what the verbs print as JSON.
type consoleSource struct {
	flags *genericclioptions.ConfigFlags
}

// Read answers pending, pod/NAMESPACE/NAME, nodes, gpus, node/NAME, quotas, gangs and decisions.
func (s consoleSource) Read(ctx context.Context, topic string) (answer console.Answer, err error) {
	var out watched
	var notes bytes.Buffer
	streams := genericiooptions.IOStreams{Out: &out, ErrOut: &notes}
	inJSON := listFlags{format: "json"}
	kind, name, _ := strings.Cut(topic, "/")
	namespace, pod, _ := strings.Cut(name, "/")
	switch {
	case topic == "pending":
		err = s.explain(ctx, streams, "", "")
	case kind == "pod" && pod != "":
		err = s.explain(ctx, streams, namespace, pod)
	case topic == "nodes", topic == "gpus":
		err = inJSON.show(ctx, s.flags, &out, "", func(w io.Writer, a *account) error {
			return printTop(w, a, strings.TrimSuffix(topic, "s"), inJSON.format, 0)
		})
	case kind == "node" && name != "":
		err = inJSON.show(ctx, s.flags, &out, name, func(w io.Writer, a *account) error {
			return printTopology(w, a, name, inJSON.format, paint{}, 0)
		})
	case topic == "quotas":
		err = showQuotas(ctx, &quotaOptions{format: "json", color: colorAuto, rounds: true}, "", s.flags, streams)
	case topic == "gangs":
		err = showGangs(ctx, &gangOptions{format: "json", color: colorAuto}, "", s.flags, streams, 0)
	case topic == "decisions":
		err = s.decisions(ctx, &out)
	default:
		text := "topic %q does not exist: use pending, pod/NAMESPACE/NAME, nodes, gpus, node/NAME, quotas, gangs or " +
			"decisions"
		return answer, &console.Refusal{Status: http.StatusBadRequest, Text: fmt.Sprintf(text, topic)}
	}
	answer = console.Answer{JSON: out.Bytes(), Content: out.content}
	for line := range strings.Lines(notes.String()) {
		answer.Notes = append(answer.Notes, strings.TrimSpace(line))
	}
	return answer, err
}

// explain explains a pod, or all that wait if name is empty.
func (s consoleSource) explain(ctx context.Context, streams genericiooptions.IOStreams, namespace, name string) error {
	o := explainOptions{list: listFlags{format: "json"}, color: colorAuto, allNamespaces: true}
	e, err := newExplanation(&o, s.flags, streams)
	if err != nil {
		return err
	}
	e.namespace = namespace
	return e.explain(ctx, "pod", name)
}

// decisions prints the decisions that the leading scheduler remembers, as far as the user may read them.
func (s consoleSource) decisions(ctx context.Context, out *watched) error {
	scheduler, err := findDiagnostics(s.flags, "")
	if err != nil {
		return err
	}
	var answer []view.Decision
	if err := scheduler.get(ctx, &answer, "/apis/v1/decisions", ""); err != nil {
		return err
	}
	return printAnswer(out, "json", newList("DecisionList", answer), nil)
}

// WhatIf asks the scheduler.
func (s consoleSource) WhatIf(ctx context.Context, question []byte) ([]byte, error) {
	scheduler, err := findDiagnostics(s.flags, "")
	if err != nil {
		return nil, err
	}
	if scheduler.question, err = withObjects(question); err != nil {
		return nil, &console.Refusal{Status: http.StatusBadRequest, Text: err.Error()}
	}
	var answer json.RawMessage
	err = scheduler.get(ctx, &answer, "/apis/v1/whatif", "")
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return nil, &console.Refusal{Status: refused.code, Text: refused.text}
	}
	return answer, err
}

// withObjects returns a question in which each added pod is an object: people write it as a string with YAML.
func withObjects(question []byte) ([]byte, error) {
	var q view.WhatIf
	decoder := json.NewDecoder(bytes.NewReader(question))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	for i := range q.Changes {
		var manifest string
		if json.Unmarshal(q.Changes[i].AddPod, &manifest) != nil {
			continue // an object, or absent
		}
		object, err := yaml.YAMLToJSONStrict([]byte(manifest))
		if err != nil {
			return nil, fmt.Errorf("changes[%d].addPod: %w", i, err)
		}
		q.Changes[i].AddPod = object
	}
	return json.Marshal(q)
}
