package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/view"
)

func newConsole(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, d Doctor) *cobra.Command {
	var address string
	var certificate console.Certificate
	var hosts []string
	c := help.Command(texts, "console", &cobra.Command{
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			started, err := d.startConsole(c.Context(), flags, address, certificate, hosts)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(streams.Out, "console %s\n", started.Address)
			return started.Wait()
		},
	})
	f := c.Flags()
	f.StringVar(&address, "listen", "127.0.0.1:0", "`address` to serve on; loopback only, unless a certificate is set")
	f.StringVar(&certificate.Cert, "tls-cert-file", "", "`file` with the certificate")
	f.StringVar(&certificate.Key, "tls-private-key-file", "", "`file` with the key of the certificate")
	f.StringSliceVar(&hosts, "allowed-hosts", nil, "`names` of the console for other machines")
	return c
}

// anonymous is who has shown no token.
const anonymous = "system:anonymous"

func (d Doctor) startConsole(ctx context.Context, flags *genericclioptions.ConfigFlags, address string,
	c console.Certificate, hosts []string,
) (*console.Console, error) {
	if (c.Cert == "") != (c.Key == "") {
		return nil, usagef("--tls-cert-file and --tls-private-key-file belong together: set both or none")
	}
	if c.Cert == "" && len(hosts) > 0 {
		return nil, usagef("--allowed-hosts %s is not allowed without --tls-cert-file", strings.Join(hosts, ","))
	}
	if err := console.CheckAddress(address); err != nil && c.Cert == "" {
		return nil, usagef("--listen %w", err)
	}
	found, err := connect(flags)
	if err != nil {
		return nil, err
	}
	if c.Cert == "" {
		return console.Start(ctx, address, consoleSource{flags, d})
	}
	return console.StartTLS(ctx, address, c, hosts, visitors{found.config, d}.signIn)
}

// visitors sign in at the API server of a configuration, of which nothing else is used.
type visitors struct {
	config *rest.Config
	doctor Doctor
}

// signIn returns the source of a token's bearer. It reads with that token alone: neither the credentials nor the
// extensions of a kubeconfig count. The API server vouches for the token.
func (v visitors) signIn(ctx context.Context, token string) (console.Source, error) {
	const text = "the token is missing, wrong or expired: sign in with a bearer token, such as one that kubectl " +
		"create token prints"
	if token == "" {
		return nil, &console.Refusal{Status: http.StatusUnauthorized, Text: text}
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.APIServer = ptr.To(os.DevNull), &v.config.Host
	flags.WrapConfigFn = func(*rest.Config) *rest.Config {
		config := rest.AnonymousClientConfig(v.config)
		config.BearerToken = token
		return config
	}
	c, err := connect(flags)
	if err != nil {
		return nil, err
	}
	self, err := c.core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if apierrors.IsUnauthorized(err) || err == nil && self.Status.UserInfo.Username == anonymous {
		return nil, &console.Refusal{Status: http.StatusUnauthorized, Text: text}
	}
	if err != nil {
		return nil, fmt.Errorf("ask the API server whose token it is: %w", err)
	}
	return consoleSource{flags, v.doctor}, nil
}

// StartConsole serves the console of the cluster of a kubeconfig until ctx ends, and returns its address.
func (d Doctor) StartConsole(ctx context.Context, kubeconfig, address string) (string, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &kubeconfig
	started, err := console.Start(ctx, address, consoleSource{flags, d})
	if err != nil {
		return "", err
	}
	return started.Address, nil
}

// consoleSource answers the console with what the verbs print as JSON.
type consoleSource struct {
	flags  *genericclioptions.ConfigFlags
	doctor Doctor
}

// Read answers the topics that its last case names.
func (s consoleSource) Read(ctx context.Context, topic string) (answer console.Answer, err error) {
	var out watched
	var notes bytes.Buffer
	var keep time.Duration
	streams := genericiooptions.IOStreams{Out: &out, ErrOut: &notes}
	inJSON := listFlags{format: "json"}
	kind, name, _ := strings.Cut(topic, "/")
	namespace, pod, _ := strings.Cut(name, "/")
	switch {
	case topic == "pending", kind == "pending" && name != "":
		err = s.explain(ctx, streams, name, "")
	case kind == "pod" && pod != "":
		err = s.explain(ctx, streams, namespace, pod)
	case topic == "nodes":
		err = inJSON.showTop(ctx, s.flags, &out, "cpu")
	case topic == "gpus":
		err = inJSON.showTop(ctx, s.flags, &out, "gpu")
	case topic == "use":
		err = showUse(ctx, s.flags, &out, &inJSON, "nodes", "")
	case kind == "node" && name != "":
		err = inJSON.show(ctx, s.flags, &out, name, func(w io.Writer, a *account) error {
			return printTopology(w, a, name, inJSON.format, paint{}, 0)
		})
	case topic == "quotas":
		err = showQuotas(ctx, &quotaOptions{format: "json", color: colorAuto, rounds: true}, "", s.flags, streams)
	case topic == "gangs", kind == "gangs" && name != "":
		err = s.gangs(ctx, streams, name)
	case topic == "decisions":
		err = s.decisions(ctx, &out)
	case topic == "past", kind == "past" && name != "":
		keep = pastKept
		err = s.past(ctx, &out, name)
	case topic == "configuration":
		var scheduler diagnostics
		var found view.Configuration
		if scheduler, err = findDiagnostics(s.flags, ""); err == nil {
			err = scheduler.get(ctx, &found, "/apis/v1/configuration", "")
		}
		if err == nil {
			err = printAnswer(&out, inJSON.format, found, nil)
		}
	case topic == "evictions", topic == "evicted", topic == "reservations", topic == "status":
		err = s.operations(ctx, topic, &out, &notes)
	case topic == "modes":
		err = inJSON.show(ctx, s.flags, &out, "", func(w io.Writer, a *account) error {
			return printAnswer(w, inJSON.format, newList("ModeList", a.modes()), nil)
		})
	default:
		text := "topic %q does not exist: use pending, pending/NAMESPACE, pod/NAMESPACE/NAME, nodes, gpus, use, " +
			"node/NAME, modes, quotas, gangs, gangs/NAMESPACE, decisions, past, past/FILE, evictions, evicted, " +
			"reservations, status or configuration"
		return answer, &console.Refusal{Status: http.StatusBadRequest, Text: fmt.Sprintf(text, topic)}
	}
	answer = console.Answer{JSON: out.Bytes(), Content: out.content, Keep: keep}
	for line := range strings.Lines(notes.String()) {
		answer.Notes = append(answer.Notes, strings.TrimSpace(line))
	}
	return answer, err
}

// explain explains a pod, or all of a namespace that wait if name is empty; the namespace "" is all.
func (s consoleSource) explain(ctx context.Context, streams genericiooptions.IOStreams, namespace, name string) error {
	o := explainOptions{list: listFlags{format: "json"}, color: colorAuto, warnings: s.doctor.Warnings}
	e, err := newExplanation(&o, s.flags, streams)
	if err == nil && namespace != "" && name == "" {
		err = e.findNamespace(ctx, namespace)
	}
	if err != nil {
		return err
	}
	e.namespace = namespace
	return e.explain(ctx, "pod", name)
}

// gangs lists the gangs of a namespace; "" is all.
func (s consoleSource) gangs(ctx context.Context, streams genericiooptions.IOStreams, namespace string) error {
	if namespace != "" {
		c, err := connect(s.flags)
		if err == nil {
			err = c.findNamespace(ctx, namespace)
		}
		if err != nil {
			return err
		}
	}
	o := gangOptions{format: "json", color: colorAuto, namespace: namespace}
	return showGangs(ctx, &o, "", s.flags, streams, 0)
}

// operations answers with what an operator looks at: moved and evicted pods, Reservations, or the installation, whose
// webhooks are not asked.
func (s consoleSource) operations(ctx context.Context, topic string, out *watched, notes io.Writer) error {
	if topic == "status" {
		status, err := readStatus(ctx, s.flags, "")
		if err != nil {
			return err
		}
		return printAnswer(out, "json", status, nil)
	}
	c, err := connect(s.flags)
	if err != nil {
		return err
	}
	switch topic {
	case "evicted":
		return c.showPast(ctx, out, notes, "json", "", 0)
	case "reservations":
		return c.showReservations(ctx, out, "json", "", paint{}, 0)
	}
	to, err := findDescheduler(s.flags, "", struct{}{})
	if err != nil {
		return err
	}
	return c.showEvictions(ctx, out, "json", to, 0)
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

// pastKept is for how long the past is not read again: a file of a journal may have 32 MiB.
const pastKept = 30 * time.Second

// past prints what a file of the journal of the leading scheduler records; an empty name is the newest file. A
// scheduler without a journal has no past, which is not an error.
func (s consoleSource) past(ctx context.Context, out *watched, name string) error {
	past := view.Past{}
	scheduler, err := findDiagnostics(s.flags, "")
	var file view.Journal
	if err == nil && s.doctor.Past != nil {
		err = scheduler.get(ctx, &file, "/apis/v1/journal", url.Values{"file": {name}}.Encode())
	}
	if refused := (*refusedError)(nil); name == "" && errors.As(err, &refused) && refused.code == http.StatusNotFound {
		err = nil
	}
	if err == nil && file.Name != "" {
		var text []byte
		if text, err = file.Text(); err == nil {
			past, err = s.doctor.Past(file.Name, bytes.NewReader(text))
		}
		past.Earlier = file.Earlier
	}
	if err != nil {
		return err
	}
	return printAnswer(out, "json", past, nil)
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
