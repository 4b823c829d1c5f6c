package guard

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Each type of this file replaces a plugin at one extension point.

type preEnqueue struct {
	fwk.PreEnqueuePlugin
	point
}

func (p *preEnqueue) PreEnqueue(ctx context.Context, pod *corev1.Pod) (status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.PreEnqueuePlugin.PreEnqueue(ctx, pod)
}

// hint returns the replacement of a hint. The queue takes an error as a hint that the pod may fit.
func (g *Guard) hint(plugin string, hint fwk.QueueingHintFn) fwk.QueueingHintFn {
	at := &point{g, plugin, "QueueingHint"}
	return func(logger klog.Logger, pod *corev1.Pod, old, now any) (_ fwk.QueueingHint, err error) {
		var status *fwk.Status
		defer func() {
			if status != nil {
				err = status.AsError()
			}
		}()
		defer at.caught(klog.NewContext(context.Background(), logger), pod, &status)
		return hint(logger, pod, old, now)
	}
}

type preFilter struct {
	fwk.PreFilterPlugin
	point
	extensions fwk.PreFilterExtensions // nil where the plugin has none
}

func (p *preFilter) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.PreFilterPlugin.PreFilter(ctx, state, pod, nodes)
}

func (p *preFilter) PreFilterExtensions() fwk.PreFilterExtensions { return p.extensions }

type preFilterExtensions struct {
	fwk.PreFilterExtensions
	add, remove point
}

func (p *preFilterExtensions) AddPod(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, other fwk.PodInfo,
	node fwk.NodeInfo,
) (status *fwk.Status) {
	defer p.add.caught(ctx, pod, &status)
	return p.PreFilterExtensions.AddPod(ctx, state, pod, other, node)
}

func (p *preFilterExtensions) RemovePod(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, other fwk.PodInfo,
	node fwk.NodeInfo,
) (status *fwk.Status) {
	defer p.remove.caught(ctx, pod, &status)
	return p.PreFilterExtensions.RemovePod(ctx, state, pod, other, node)
}

type filter struct {
	fwk.FilterPlugin
	point
}

func (p *filter) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
) (status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.FilterPlugin.Filter(ctx, state, pod, node)
}

type postFilter struct {
	fwk.PostFilterPlugin
	point
}

func (p *postFilter) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes fwk.NodeToStatusReader,
) (result *fwk.PostFilterResult, status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.PostFilterPlugin.PostFilter(ctx, state, pod, nodes)
}

type preScore struct {
	fwk.PreScorePlugin
	point
}

func (p *preScore) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.PreScorePlugin.PreScore(ctx, state, pod, nodes)
}

type score struct {
	fwk.ScorePlugin
	point
	extensions fwk.ScoreExtensions // nil where the plugin has none
}

func (p *score) Score(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
) (value int64, status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.ScorePlugin.Score(ctx, state, pod, node)
}

func (p *score) ScoreExtensions() fwk.ScoreExtensions { return p.extensions }

type scoreExtensions struct {
	fwk.ScoreExtensions
	point
}

func (p *scoreExtensions) NormalizeScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	scores fwk.NodeScoreList,
) (status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.ScoreExtensions.NormalizeScore(ctx, state, pod, scores)
}

type reserve struct {
	fwk.ReservePlugin
	reserve, unreserve point
}

func (p *reserve) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) (status *fwk.Status) {
	defer p.reserve.caught(ctx, pod, &status)
	return p.ReservePlugin.Reserve(ctx, state, pod, node)
}

func (p *reserve) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	defer p.unreserve.logged(ctx, pod)
	p.ReservePlugin.Unreserve(ctx, state, pod, node)
}

type permit struct {
	fwk.PermitPlugin
	point
}

func (p *permit) Permit(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) (status *fwk.Status, wait time.Duration) {
	defer p.caught(ctx, pod, &status)
	return p.PermitPlugin.Permit(ctx, state, pod, node)
}

type preBind struct {
	fwk.PreBindPlugin
	flight, bind point
}

func (p *preBind) PreBindPreFlight(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) (result *fwk.PreBindPreFlightResult, status *fwk.Status) {
	defer p.flight.caught(ctx, pod, &status)
	return p.PreBindPlugin.PreBindPreFlight(ctx, state, pod, node)
}

func (p *preBind) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) (status *fwk.Status) {
	defer p.bind.caught(ctx, pod, &status)
	return p.PreBindPlugin.PreBind(ctx, state, pod, node)
}

type bind struct {
	fwk.BindPlugin
	point
}

func (p *bind) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.BindPlugin.Bind(ctx, state, pod, node)
}

type postBind struct {
	fwk.PostBindPlugin
	point
}

func (p *postBind) PostBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	defer p.logged(ctx, pod)
	p.PostBindPlugin.PostBind(ctx, state, pod, node)
}

type sign struct {
	fwk.SignPlugin
	point
}

func (p *sign) SignPod(ctx context.Context, pod *corev1.Pod) (signed []fwk.SignFragment, status *fwk.Status) {
	defer p.caught(ctx, pod, &status)
	return p.SignPlugin.SignPod(ctx, pod)
}

// parallelizer continues the panic of a piece of work in the goroutine that waits for all pieces. The other pieces that
// have not begun are not done.
type parallelizer struct{ fwk.Parallelizer }

// continued is a panic of another goroutine, with the stack there.
type continued struct {
	cause any
	stack []byte
}

// Until does pieces of work in several goroutines, and panics where one of them does.
func (p parallelizer) Until(ctx context.Context, pieces int, work workqueue.DoWorkPieceFunc, operation string) {
	var first atomic.Pointer[continued]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.Parallelizer.Until(ctx, pieces, func(i int) {
		defer func() {
			if cause := recover(); cause != nil {
				first.CompareAndSwap(nil, &continued{cause, debug.Stack()})
				cancel()
			}
		}()
		work(i)
	}, operation)
	if c := first.Load(); c != nil {
		panic(*c)
	}
}
