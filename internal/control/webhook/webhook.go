package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
)

// Rules are what differs from one cluster to the next.
type Rules struct {
	// Schedulers are the user names that may write the scheduler's keys.
	Schedulers []string
	// SchedulerName is the scheduler of pods with devices that name none, in namespaces that ask for it.
	SchedulerName string
	// RequireNRIPlugin puts up the fence of admission.Fence.
	RequireNRIPlugin bool
	// Pod returns a pod that the API server has; nil where that is not known.
	Pod func(namespace, name string) *corev1.Pod
	// Room returns what the node of a pod has beside it; nil knows no node.
	Room func(pod *corev1.Pod) admission.Room
	// Kinds are the kinds of devices that Device objects list, beside GPUs, RDMA and FPGA.
	Kinds func() device.Kinds
	// Profiles returns the ClusterColocationProfiles, sorted by name, and the labels of a namespace; an error where
	// they are not known yet.
	Profiles func(namespace string) ([]*admission.Profile, labels.Set, error)
	// Gangs finds the gangs of pods that operators create; nil makes none.
	Gangs Gangs
	// Jobs finds the Jobs of pods; nil finds none.
	Jobs Jobs
	// Quotas answers about elastic quotas; nil checks none.
	Quotas *Quotas
}

// Gangs finds the gangs of pods that operators create.
type Gangs interface {
	// Mark returns the PodGroup of a pod and the rule that makes it; "" for a pod that is left alone. It fails where
	// the answer is not known and must be.
	Mark(ctx context.Context, pod *corev1.Pod) (name, rule string, err error)
}

// Jobs finds the Jobs of pods.
type Jobs interface {
	// JobOf returns the Job that controls a pod; nil for a pod of none, and where the Job cannot be read.
	JobOf(ctx context.Context, pod *corev1.Pod) *batchv1.Job
}

// Register adds every handler to a server.
func Register(to interface{ Register(string, http.Handler) }, decoder ctrl.Decoder, rules Rules, metrics *Metrics) {
	h := handlers{decoder, rules}
	all := map[string]ctrl.HandlerFunc{
		"/mutate-pod":           h.mutating(h.mutatePod),
		"/mutate-pod-scheduler": h.mutating(h.schedule),
		"/mutate-pod-profile":   h.mutating(h.colocate),
		"/validate-binding":     h.checkBinding,
		"/validate-pod":         validating(decoder, h.validatePod),
		"/validate-pod-resize":  validating(decoder, h.validateResize),
		"/validate-node": validating(decoder, func(_ ctrl.Request, node, _ *corev1.Node) admission.Answer {
			return admission.Node(node)
		}),
	}
	all["/validate-podgroup"] = validatePodGroup
	all["/validate-workload"] = h.warnWorkload
	all["/warn-scheduler"] = h.warnScheduler
	all["/validate-clustercolocationprofile"] = validateProfile
	all["/validate-reservation"] = h.validateReservation
	all["/validate-podmigrationjob"] = h.validateMigration
	if rules.Gangs != nil {
		all["/mutate-pod-gang"] = h.group
	}
	if rules.Jobs != nil {
		all["/mutate-pod-runtime"] = h.declareRunTime
	}
	if q := rules.Quotas; q != nil {
		all["/mutate-elasticquota"] = q.addTree
		all["/validate-elasticquota"] = func(_ context.Context, req ctrl.Request) ctrl.Response {
			return q.answer(req, rules.author(req))
		}
	}
	for path, handle := range all {
		to.Register(path, &ctrl.Webhook{Handler: metrics.observe(strings.TrimPrefix(path, "/"), handle)})
	}
}

type handlers struct {
	decoder ctrl.Decoder
	rules   Rules
}

func (h handlers) mutatePod(_ ctrl.Request, pod *corev1.Pod) (*corev1.Pod, admission.Answer, error) {
	changed, answer := admission.Mutate(pod)
	if h.rules.RequireNRIPlugin {
		fenced, refused := admission.Fence(changed, h.rules.Kinds())
		if !refused.Allowed() {
			return fenced, refused, nil
		}
		changed = fenced
	}
	return changed, answer, nil
}

func (h handlers) schedule(_ ctrl.Request, pod *corev1.Pod) (*corev1.Pod, admission.Answer, error) {
	changed, answer := admission.Schedule(pod, h.rules.Kinds(), h.rules.SchedulerName)
	return changed, answer, nil
}

// colocate changes pods by the profiles.
func (h handlers) colocate(req ctrl.Request, pod *corev1.Pod) (*corev1.Pod, admission.Answer, error) {
	profiles, namespace, err := h.rules.Profiles(req.Namespace)
	if err != nil {
		return nil, admission.Answer{}, err
	}
	changed, answer := admission.Colocate(pod, namespace, profiles, func(string) int { return rand.IntN(100) })
	return changed, answer, nil
}

// group puts a pod into the gang of the operator's object that it is created for.
func (h handlers) group(ctx context.Context, req ctrl.Request) ctrl.Response {
	return h.mutating(func(req ctrl.Request, pod *corev1.Pod) (*corev1.Pod, admission.Answer, error) {
		pod.Namespace = cmp.Or(pod.Namespace, req.Namespace)
		name, rule, err := h.rules.Gangs.Mark(ctx, pod)
		if err != nil || name == "" {
			return pod, admission.Answer{}, err
		}
		return admission.Join(pod, name, rule), admission.Answer{}, nil
	})(ctx, req)
}

// declareRunTime gives a pod the run time that its Job declares.
func (h handlers) declareRunTime(ctx context.Context, req ctrl.Request) ctrl.Response {
	return h.mutating(func(req ctrl.Request, pod *corev1.Pod) (*corev1.Pod, admission.Answer, error) {
		pod.Namespace = cmp.Or(pod.Namespace, req.Namespace)
		changed, answer := admission.DeclareRunTime(pod, h.rules.Jobs.JobOf(ctx, pod))
		return changed, answer, nil
	})(ctx, req)
}

// mutating answers requests about pods that are created: with the difference to what change returns, or by its error
// that the request is to be made again.
func (h handlers) mutating(change func(ctrl.Request, *corev1.Pod) (*corev1.Pod, admission.Answer, error),
) ctrl.HandlerFunc {
	return func(_ context.Context, req ctrl.Request) ctrl.Response {
		pod := &corev1.Pod{}
		if err := h.decoder.Decode(req, pod); err != nil {
			return ctrl.Errored(http.StatusBadRequest, err)
		}
		changed, answer, err := change(req, pod)
		if err != nil {
			return ctrl.Errored(http.StatusServiceUnavailable, err)
		}
		if !answer.Allowed() {
			return respond(req, answer)
		}
		// Both are written by the same types, so that what these do not know is not in the difference.
		before, err := json.Marshal(pod)
		after, failed := json.Marshal(changed)
		if err = errors.Join(err, failed); err != nil {
			return ctrl.Errored(http.StatusInternalServerError, err)
		}
		return ctrl.PatchResponseFromRaw(before, after).WithWarnings(answer.Warnings...)
	}
}

// checkBinding answers requests to bind a pod. What the pod asks for is not in them.
func (h handlers) checkBinding(_ context.Context, req ctrl.Request) ctrl.Response {
	if h.rules.author(req) == admission.Scheduler {
		return ctrl.Allowed("")
	}
	pod := h.rules.Pod(req.Namespace, req.Name)
	if pod == nil {
		return ctrl.Errored(http.StatusServiceUnavailable,
			fmt.Errorf("pod %s/%s is not known yet: try again", req.Namespace, req.Name))
	}
	return respond(req, admission.Bind(pod, h.rules.Kinds(), h.rules.SchedulerName))
}

// validating answers requests about objects of one kind. Except in a creation there is an old object.
func validating[T any, P interface {
	*T
	runtime.Object
}](decoder ctrl.Decoder, validate func(req ctrl.Request, object, old P) admission.Answer) ctrl.HandlerFunc {
	return func(_ context.Context, req ctrl.Request) ctrl.Response {
		object, old := P(new(T)), P(new(T))
		if err := decoder.Decode(req, object); err != nil {
			return ctrl.Errored(http.StatusBadRequest, err)
		}
		if req.Operation != admissionv1.Create {
			if err := decoder.DecodeRaw(req.OldObject, old); err != nil {
				return ctrl.Errored(http.StatusBadRequest, err)
			}
		}
		return respond(req, validate(req, object, old))
	}
}

func (h handlers) validatePod(req ctrl.Request, pod, old *corev1.Pod) admission.Answer {
	var a admission.Answer
	if req.Operation == admissionv1.Create {
		a, old = admission.Create(pod, h.rules.Kinds()), nil
	} else {
		a = admission.Update(pod, old, h.rules.author(req))
	}
	if h.rules.Quotas != nil {
		h.rules.Quotas.addPod(&a, pod, old)
	}
	return a
}

func (h handlers) validateResize(_ ctrl.Request, pod, old *corev1.Pod) admission.Answer {
	var room admission.Room
	if h.rules.Room != nil && old.Spec.NodeName != "" {
		room = h.rules.Room(old)
	}
	a := admission.Resize(pod, old, room)
	if h.rules.Quotas != nil {
		h.rules.Quotas.addResize(&a, pod)
	}
	return a
}

func validatePodGroup(_ context.Context, req ctrl.Request) ctrl.Response {
	var old *v1alpha1.PodGroup
	kind := schema.GroupVersionKind(req.Kind)
	if len(req.OldObject.Raw) > 0 {
		old, _ = kube.ReadPodGroup(kind, req.OldObject.Raw) // what cannot be read of it does not matter
	}
	g, err := kube.ReadPodGroup(kind, req.Object.Raw)
	if err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	g.Namespace = cmp.Or(g.Namespace, req.Namespace)
	return respond(req, admission.PodGroup(g, old))
}

func validateProfile(_ context.Context, req ctrl.Request) ctrl.Response {
	var p colocation.ClusterColocationProfile
	if err := json.Unmarshal(req.Object.Raw, &p); err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	return respond(req, admission.CheckProfile(&p))
}

func (h handlers) validateReservation(_ context.Context, req ctrl.Request) ctrl.Response {
	var old *reservation.Reservation
	if len(req.OldObject.Raw) > 0 {
		old, _ = kube.ReadReservation(req.OldObject.Raw) // what cannot be read of it does not matter
	}
	r, err := kube.ReadReservation(req.Object.Raw)
	if err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	return respond(req, admission.Reservation(r, old, h.rules.Kinds()))
}

func (h handlers) validateMigration(_ context.Context, req ctrl.Request) ctrl.Response {
	var job, old *migration.PodMigrationJob
	if err := json.Unmarshal(req.Object.Raw, &job); err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	if len(req.OldObject.Raw) > 0 {
		_ = json.Unmarshal(req.OldObject.Raw, &old) // what cannot be read of it does not matter
	}
	var template *reservation.Reservation
	if o := job.Spec.ReservationOptions; o != nil && o.Template != nil {
		var err error
		if template, err = kube.ReadReservation(o.Template.Raw); err != nil {
			return ctrl.Errored(http.StatusBadRequest, fmt.Errorf("spec.reservationOptions.template: %w", err))
		}
	}
	return respond(req, admission.PodMigrationJob(job, old, template, h.rules.Kinds()))
}

func (r Rules) author(req ctrl.Request) admission.Author {
	if slices.Contains(r.Schedulers, req.UserInfo.Username) {
		return admission.Scheduler
	}
	return admission.Anyone
}

// respond writes an answer as the API server does its own validation's: 422 with one cause per field.
func respond(req ctrl.Request, a admission.Answer) ctrl.Response {
	if a.Allowed() {
		return ctrl.Allowed("").WithWarnings(a.Warnings...)
	}
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Group: req.Kind.Group, Kind: req.Kind.Kind, Name: req.Name},
	}
	var texts []string
	for _, r := range a.Refusals {
		texts = append(texts, r.String())
		status.Details.Causes = append(status.Details.Causes,
			metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: r.Field, Message: r.Text})
	}
	status.Message = strings.Join(texts, "; ")
	response := ctrl.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: status}}
	return response.WithWarnings(a.Warnings...)
}

// Metrics count what the webhooks answer. Their labels are bounded.
type Metrics struct {
	answers  *prometheus.CounterVec
	warnings *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered, and begin at zero.
func NewMetrics() *Metrics {
	return &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_admission_answers_total",
			Help: "Answers of the webhooks by webhook, operation and outcome (allowed, refused, error).",
		}, []string{"webhook", "operation", "outcome"}),
		warnings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_admission_warnings_total",
			Help: "Warnings of the webhooks.",
		}, []string{"webhook"}),
	}
}

// Collectors returns all metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.answers, m.warnings}
}

func (m *Metrics) observe(name string, handle ctrl.HandlerFunc) ctrl.HandlerFunc {
	return func(ctx context.Context, req ctrl.Request) ctrl.Response {
		response := handle(ctx, req)
		outcome := "allowed"
		switch {
		case response.Allowed:
		case response.Result != nil && response.Result.Details != nil:
			outcome = "refused"
		default:
			outcome = "error"
		}
		m.answers.WithLabelValues(name, string(req.Operation), outcome).Inc()
		m.warnings.WithLabelValues(name).Add(float64(len(response.Warnings)))
		return response
	}
}
