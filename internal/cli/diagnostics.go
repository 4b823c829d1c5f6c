package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/view"
)

// extensionName is where the kubeconfig of a local cluster keeps {"diagnostics":"http://127.0.0.1:PORT"} and, with
// replicas of the scheduler, "standby": the addresses of the others.
const extensionName = "tenon.sh"

// component is a server of Tenon that answers below /apis/v1.
type component struct {
	name  string // of its lease and its Service
	title string
	port  int // its secure one
}

// diagnostics is where the scheduler is asked, or another component.
type diagnostics struct {
	// component is the scheduler if it is empty.
	component component
	// question is posted, as JSON; nil for what is only read.
	question []byte
	// replicas are the addresses of all of a local cluster, in the order in which they are asked.
	replicas []*url.URL
	// flags lead to the cluster whose leader is asked where there are none; nil for none either.
	flags *genericclioptions.ConfigFlags
}

// findDiagnostics reads the address from the flag, else all of them from the cluster's extension in the kubeconfig.
// Where it names none, the replica that leads is found when it is asked.
func findDiagnostics(flags *genericclioptions.ConfigFlags, address string) (found diagnostics, err error) {
	found.flags = flags
	addresses := []string{address}
	if address == "" {
		if addresses, err = addressesInKubeconfig(flags); err != nil {
			return found, err
		}
	}
	err = found.add(addresses...)
	return found, err
}

// add adds addresses of replicas.
func (d *diagnostics) add(addresses ...string) error {
	for _, address := range addresses {
		base, err := url.Parse(address)
		if err != nil || base.Host == "" {
			return usagef("diagnostics address %q is not allowed: use http://HOST:PORT", address)
		}
		d.replicas = append(d.replicas, base)
	}
	return nil
}

// findDescheduler returns where the descheduler is asked a question: at the address, else where the kubeconfig says.
func findDescheduler(flags *genericclioptions.ConfigFlags, address string, question any) (diagnostics, error) {
	text, err := json.Marshal(question)
	if err != nil {
		return diagnostics{}, fmt.Errorf("encode the question: %w", err)
	}
	found := diagnostics{component: descheduler, question: text, flags: flags}
	if address == "" {
		local, err := extensionOf(flags)
		if err != nil {
			return diagnostics{}, err
		}
		address = local.Descheduler
	}
	if address != "" {
		err = found.add(address)
	}
	return found, err
}

// extension is what a local cluster has in its kubeconfig.
type extension struct {
	Diagnostics string   `json:"diagnostics"`
	Standby     []string `json:"standby"`
	Descheduler string   `json:"descheduler"`
}

// addressesInKubeconfig returns the addresses that a local cluster has in its kubeconfig; none for other clusters.
func addressesInKubeconfig(flags *genericclioptions.ConfigFlags) ([]string, error) {
	local, err := extensionOf(flags)
	if err != nil || local.Diagnostics == "" {
		return nil, err
	}
	return append([]string{local.Diagnostics}, local.Standby...), nil
}

// extensionOf returns the extension of the cluster in the kubeconfig; an empty one for clusters that are not local.
func extensionOf(flags *genericclioptions.ConfigFlags) (local extension, err error) {
	config, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return local, fmt.Errorf("read the kubeconfig: %w", err)
	}
	chosen := *flags.ClusterName
	if c := config.Contexts[cmp.Or(*flags.Context, config.CurrentContext)]; chosen == "" && c != nil {
		chosen = c.Cluster
	}
	cluster := config.Clusters[chosen]
	if cluster == nil {
		return local, nil
	}
	raw, ok := cluster.Extensions[extensionName].(*runtime.Unknown)
	if !ok {
		return local, nil
	}
	if err := json.Unmarshal(raw.Raw, &local); err != nil {
		return local, fmt.Errorf("read extension %s of cluster %s in the kubeconfig: %w", extensionName, chosen, err)
	}
	return local, nil
}

// errWaiting is the answer of a replica that does not lead.
var errWaiting = errors.New("waits for leadership")

// explain asks for the explanation of a pod, whose namespace and name the path begins with.
func (d diagnostics) explain(ctx context.Context, into any, query string, path ...string) error {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	return d.get(ctx, into, "/apis/v1/explain/pods/"+strings.Join(path, "/"), query)
}

// get asks one replica after the other until one answers that leads, or the one that holds the lease. The path is
// escaped.
func (d diagnostics) get(ctx context.Context, into any, path, query string) error {
	if len(d.replicas) == 0 {
		return d.askLeader(ctx, into, path, query)
	}
	var silent []string
	for _, replica := range d.replicas {
		target := replica.JoinPath(path)
		target.RawQuery = query
		err := d.ask(ctx, &http.Client{Timeout: schedulerTimeout}, target, into)
		var network *url.Error
		if err == nil || ctx.Err() != nil || !errors.Is(err, errWaiting) && !errors.As(err, &network) {
			return err
		}
		silent = append(silent, err.Error())
	}
	return errors.New(strings.Join(silent, "; "))
}

// refusedError is an answer of a component that is none.
type refusedError struct {
	title string
	code  int
	text  string
}

func (e *refusedError) Error() string {
	if e.ExitCode() == ExitUsage {
		_, text, found := strings.Cut(e.text, "]: ") // ask.pods[0]: is where the question has it
		if found && strings.HasPrefix(e.text, "ask.") {
			return text
		}
		return e.text
	}
	if e.code == http.StatusBadGateway {
		return e.text // the error of a component that this one asked
	}
	return "error from " + e.title + ": " + e.text
}

// ExitCode returns that of bad input where the component refuses the question, such as one about an unknown pod.
func (e *refusedError) ExitCode() int {
	switch e.code {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitUnreachable
	}
	return ExitUnexpected
}

const schedulerTimeout = 10 * time.Second

// who returns the component that is asked.
func (d diagnostics) who() component { return cmp.Or(d.component, scheduler) }

func (d diagnostics) ask(ctx context.Context, client *http.Client, target *url.URL, into any) error {
	title := d.who().title
	status, text, err := send(ctx, client, title, target.String(), d.question)
	switch {
	case err != nil:
		return err
	case status == http.StatusServiceUnavailable:
		return fmt.Errorf("%s at %s %w: %s", title, target.Host, errWaiting, said(status, text))
	case status != http.StatusOK:
		return &refusedError{title, status, said(status, text)}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer of %s from %s: %w", title, target, err)
	}
	return nil
}

const maxAnswer = 64 << 20

func fetch(ctx context.Context, client *http.Client, whom, target string) (status int, text []byte, err error) {
	return send(ctx, client, whom, target, nil)
}

// send posts a question; nil reads.
func send(ctx context.Context, client *http.Client, whom, target string, question []byte,
) (status int, text []byte, err error) {
	method := http.MethodGet
	if question != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(question))
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", whom, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", whom, err)
	}
	defer func() { _ = response.Body.Close() }() // reading is done
	if text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", whom, err)
	}
	return response.StatusCode, text, nil
}

// said is the message in the JSON of an error, else the status.
func said(status int, text []byte) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &e) != nil || e.Message == "" {
		return fmt.Sprintf("%d %s", status, http.StatusText(status))
	}
	return e.Message
}

// ofPlugin asks the scheduler for all that a plugin has, by name; nil where the objects must do.
func ofPlugin[T any](ctx context.Context, d diagnostics, plugin, path, query string, warn io.Writer) ([]T, error) {
	var found map[string]T
	err := d.get(ctx, &found, "/apis/v1/plugins/"+plugin+"/"+path, query)
	if errors.Is(err, errNoScheduler) {
		return nil, nil
	}
	if refused := (*refusedError)(nil); errors.As(err, &refused) && refused.code == http.StatusNotFound {
		return nil, failure{ExitUnreachable, fmt.Errorf("%w: the scheduler runs without the plugin %s, so its %s do "+
			"not act; enable the plugin in a profile", err, plugin, path)}
	}
	if err != nil {
		say(warn, "warning: %v; this is what the objects say\n", err)
		return nil, ctx.Err()
	}
	all := []T{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all, nil
}

var (
	scheduler   = component{view.SchedulerName, "the scheduler", 10259}
	descheduler = component{"tenon-descheduler", "the descheduler", 8443}
)

// errNoScheduler is returned where no lease says that a scheduler of Tenon has ever led.
var errNoScheduler = errors.New("no scheduler was asked: neither the kubeconfig nor a lease names one")

// askLeader asks the replica that holds the lease, through its pod, and once more where another one leads by now.
func (d diagnostics) askLeader(ctx context.Context, into any, path, query string) error {
	if d.flags == nil {
		return errNoScheduler
	}
	c, err := connect(d.flags)
	if err != nil {
		return err
	}
	err = d.askHolder(ctx, c, into, path, query)
	if errors.Is(err, errWaiting) {
		err = d.askHolder(ctx, c, into, path, query)
	}
	return err
}

func (d diagnostics) askHolder(ctx context.Context, c cluster, into any, path, query string) error {
	who := d.who()
	lease, err := c.lease(ctx, who.name)
	if apierrors.IsNotFound(err) && who == descheduler {
		return failure{ExitUnreachable, errors.New("no descheduler was asked: neither the kubeconfig nor a lease " +
			"names one; install tenon-descheduler, or name its address with --descheduler")}
	}
	if apierrors.IsNotFound(err) {
		return errNoScheduler
	}
	if err != nil {
		return err
	}
	holder := holderOf(lease)
	if holder == "" {
		return fmt.Errorf("no %s leads: its lease has no holder", strings.TrimPrefix(who.title, "the "))
	}
	client, err := c.componentClient(ctx, who)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	address, stop, err := c.forwardPort(ctx, installedIn(), holder, who.port)
	if err != nil {
		return err
	}
	defer stop()
	target := (&url.URL{Scheme: "https", Host: address}).JoinPath(path)
	target.RawQuery = query
	return d.ask(ctx, client, target, into)
}

// lease returns that of a component, in the namespace of the installation or where kube-scheduler's is by default.
func (c cluster) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	namespace := installedIn()
	lease, err := c.core.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		namespace = metav1.NamespaceSystem
		lease, err = c.core.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return lease, rightMissing(err, "get on leases of namespace "+namespace)
}

// holderOf returns the pod that holds a lease: its host name, before the suffix of this start.
func holderOf(lease *coordinationv1.Lease) string {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if i := strings.LastIndex(holder, "_"); i >= 0 {
		holder = holder[:i]
	}
	return holder
}

// componentClient returns a client with the user's own credentials for a server whose certificate the authority of the
// installation has signed. Whatever the kubeconfig says of checks, nothing is sent to another server: TLS checks the
// certificate before it shows one of the client's, and before the first request.
func (c cluster) componentClient(ctx context.Context, who component) (*http.Client, error) {
	if c.config.Impersonate.UserName != "" {
		return nil, fmt.Errorf("%s does not support impersonation: remove --as", who.title)
	}
	published, err := c.core.CoreV1().ConfigMaps(installedIn()).Get(ctx, authorityConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the authority of the certificate of %s: %w", who.title,
			rightMissing(err, "get on configmaps of namespace "+installedIn()))
	}
	authority := []byte(published.Data[authorityKey])
	if !x509.NewCertPool().AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("ConfigMap %s/%s has no certificate in %s: %s is shown no credentials",
			installedIn(), authorityConfigMap, authorityKey, who.title)
	}
	config := rest.CopyConfig(c.config)
	config.Insecure, config.CAFile, config.CAData = false, "", authority
	config.ServerName = who.name + "." + installedIn() + ".svc"
	config.Timeout, config.Dial = schedulerTimeout, nil
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	// The transport shows the credentials to every server that it is sent to.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}
