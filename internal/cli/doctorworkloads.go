package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

func newDoctorWorkloads(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, doctor Doctor,
) *cobra.Command {
	diagnose := func(ctx context.Context, c cluster) (view.Diagnosis, error) {
		c.namespace = *flags.Namespace
		objects, err := c.workloads(ctx)
		if err != nil {
			return view.Diagnosis{}, err
		}
		return doctor.API.Workloads(objects), nil
	}
	return newDiagnosis("doctor-workloads", flags, streams, diagnose)
}

// workloads reads what the checks need. Kinds that the cluster does not serve have no objects.
func (c cluster) workloads(ctx context.Context) (o convert.WorkloadObjects, err error) {
	pods, err := c.core.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list pods: %w", err)
	}
	o.Pods = pods.Items
	everywhere := c
	everywhere.namespace = "" // a quota may list namespaces
	for _, group := range v1alpha1.Groups() {
		put := func(q *v1alpha1.ElasticQuota) {
			spec, _ := convert.Quota(q)
			o.Quotas = append(o.Quotas, spec)
		}
		if _, err := each(ctx, everywhere, v1alpha1.Resource(group), "", kube.ReadQuota, put); err != nil {
			return o, err
		}
	}
	group := v1alpha1.CommunityGroupName
	kind := schema.GroupVersionKind{Group: group, Kind: "PodGroup"}
	read := func(text []byte) (*v1alpha1.PodGroup, error) { return kube.ReadPodGroup(kind, text) }
	for _, r := range v1alpha1.PodGroupResources(group) {
		if _, err := each(ctx, c, r, "", read, func(g *v1alpha1.PodGroup) {
			o.PodGroups = append(o.PodGroups, *g)
		}); err != nil {
			return o, err
		}
	}
	for _, one := range []struct {
		group, resource string
		versions        []string
		to              *[]unstructured.Unstructured
	}{
		{"kubeflow.org", "mpijobs", []string{"v2beta1"}, &o.MPIJobs},
		{"batch.volcano.sh", "jobs", []string{"v1alpha1"}, &o.VolcanoJobs},
		{"kueue.x-k8s.io", "workloads", []string{"v1beta2", "v1beta1"}, &o.Workloads},
	} {
		for _, version := range one.versions {
			r := schema.GroupVersionResource{Group: one.group, Version: version, Resource: one.resource}
			list, err := c.dynamic.Resource(r).Namespace(c.namespace).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return o, fmt.Errorf("list %s: %w", r.GroupResource(), err)
			}
			*one.to = list.Items
			break
		}
	}
	return o, nil
}
