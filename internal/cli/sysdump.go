package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/view"
)

func newSysdump(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var file string
	c := help.Command(texts, "sysdump", &cobra.Command{
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				file = "tenon-sysdump-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			d := dump{cluster: cl}
			d.collect(c.Context(), flags)
			if err := d.write(file); err != nil {
				return fmt.Errorf("write the archive: %w", err)
			}
			_, err = fmt.Fprintf(streams.Out, "%s: %s, %s (problems.txt)\n", file,
				view.Count(len(d.files), "file"), view.Count(len(d.problems), "problem"))
			return err
		},
	})
	c.Flags().StringVarP(&file, "output", "o", "", "new `file` for the archive (default tenon-sysdump-TIME.tar.gz)")
	return c
}

type dump struct {
	cluster
	files    []dumped
	problems []string
	values   []string // of environment variables
}

type dumped struct {
	name string
	text []byte
}

// collected are the resources of which all objects are read, each with version and group.
const collected = `nodes.v1. noderesourcetopologies.v1alpha2.topology.node.k8s.io
	devices.v1alpha1.scheduling.koordinator.sh reservations.v1alpha1.scheduling.koordinator.sh
	podmigrationjobs.v1alpha1.scheduling.koordinator.sh
	nodemetrics.v1alpha1.slo.koordinator.sh nodeslos.v1alpha1.slo.koordinator.sh
	compositepodgroups.v1alpha3.scheduling.k8s.io
	clusternetworktopologies.v1alpha1.scheduling.koordinator.sh numatopologies.v1alpha1.nodeinfo.volcano.sh
	elasticquotaprofiles.v1alpha1.quota.koordinator.sh elasticquotas.v1alpha1.scheduling.sigs.k8s.io
	elasticquotas.v1alpha1.scheduling.x-k8s.io podgroups.v1alpha1.scheduling.sigs.k8s.io
	podgroups.v1alpha1.scheduling.x-k8s.io podgroups.v1alpha2.scheduling.k8s.io podgroups.v1beta1.scheduling.k8s.io
	mutatingwebhookconfigurations.v1.admissionregistration.k8s.io
	validatingwebhookconfigurations.v1.admissionregistration.k8s.io`

// collect reads everything. What cannot be read is a problem.
func (d *dump) collect(ctx context.Context, flags *genericclioptions.ConfigFlags) {
	for resource := range strings.FieldsSeq(collected) {
		d.list(ctx, resource, metav1.NamespaceAll)
	}
	for resource := range strings.FieldsSeq("pods.v1. events.v1. deployments.v1.apps daemonsets.v1.apps") {
		d.list(ctx, resource, installedIn())
	}
	pods, err := d.core.CoreV1().Pods(installedIn()).List(ctx, ofComponents())
	d.failed("list pods", err)
	for _, p := range ptr.Deref(pods, corev1.PodList{}).Items {
		for _, c := range p.Spec.Containers {
			log, err := d.core.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: c.Name, TailLines: new(int64(10_000)), LimitBytes: new(int64(8 << 20)), Timestamps: true,
			}).DoRaw(ctx)
			if !d.failed("log of "+p.Name, err) {
				d.files = append(d.files, dumped{"logs/" + p.Name + "/" + c.Name + ".log", log})
			}
		}
	}
	status, err := askStatus(ctx, flags)
	d.failed("status", err)
	d.add("status.json", status)
	d.add("version.json", builtFrom())
	d.addJournal(ctx, flags)
}

// addJournal adds the newest file of the scheduler's journal, where one is written.
func (d *dump) addJournal(ctx context.Context, flags *genericclioptions.ConfigFlags) {
	var last view.Journal
	var text []byte
	scheduler, err := findDiagnostics(flags, "")
	if err == nil {
		err = scheduler.get(ctx, &last, "/apis/v1/journal", "")
	}
	if refused := (*refusedError)(nil); errors.As(err, &refused) && refused.code == http.StatusNotFound {
		return // it runs without
	}
	if err == nil && last.Name != "" {
		text, err = last.Text()
	}
	if !d.failed("journal", err) && text != nil {
		d.files = append(d.files, dumped{"journal/" + path.Base(last.Name), text})
	}
}

func (d *dump) failed(what string, err error) bool {
	if err != nil {
		d.problems = append(d.problems, what+": "+err.Error())
	}
	return err != nil
}

func (d *dump) list(ctx context.Context, resource, namespace string) {
	parsed, _ := schema.ParseResourceArg(resource)
	name := strings.TrimSuffix(resource, ".")
	found, err := d.dynamic.Resource(*parsed).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || d.failed("list "+name, err) { // the cluster does not serve it
		return
	}
	content := found.UnstructuredContent()
	d.redact(content)
	d.add("objects/"+name+".json", content)
}

// redact removes the values of environment variables from a tree, and notes them; and what repeats an object.
func (d *dump) redact(tree any) {
	switch tree := tree.(type) {
	case []any:
		for _, item := range tree {
			d.redact(item)
		}
	case map[string]any:
		delete(tree, "managedFields")
		delete(tree, corev1.LastAppliedConfigAnnotation)
		variables, _ := tree["env"].([]any)
		for _, v := range variables {
			if v, ok := v.(map[string]any); ok {
				if text, _ := v["value"].(string); len(text) >= 4 {
					d.values = append(d.values, text)
				}
				v["value"] = redacted
			}
		}
		for _, value := range tree {
			d.redact(value)
		}
	}
}

const redacted = "(redacted)"

func (d *dump) add(name string, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	if !d.failed(name, err) {
		d.files = append(d.files, dumped{name, text})
	}
}

// write writes a new archive, without what the values of variables are, wherever they occur.
func (d *dump) write(name string) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(f)
	archive := tar.NewWriter(zipped)
	defer func() { err = errors.Join(err, archive.Close(), zipped.Close(), f.Close()) }()
	problems := dumped{"problems.txt", []byte(strings.Join(d.problems, "\n") + "\n")}
	for _, file := range append(d.files, problems) {
		for _, value := range d.values {
			if strings.HasPrefix(file.name, "journal/") {
				break // it has no variables, and a checksum in each line
			}
			file.text = bytes.ReplaceAll(file.text, []byte(value), []byte(redacted))
		}
		h := &tar.Header{
			Name: "tenon-sysdump/" + file.name, Mode: 0o600, Size: int64(len(file.text)), ModTime: time.Now(),
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(file.text); err != nil {
			return err
		}
	}
	return nil
}
