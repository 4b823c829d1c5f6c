package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/kube"
)

// Version is that of the format. Other versions are not read.
const Version = 2

// longestLine bounds a record that is read: an object of the API server has at most 3 MiB.
const longestLine = 8 << 20

// Types of records.
const (
	SnapshotType = "snapshot"
	EventType    = "event"
	DecisionType = "decision"
)

// Operations of events.
const (
	Put     = "put"     // the object is new or has changed
	Change  = "change"  // a pod has changed, but for its spec: of that, the record has the node alone
	Delete  = "delete"  // the object is gone
	Release = "release" // the pod is not bound after all: what was reserved for it is free
	Forget  = "forget"  // the pod was deleted before it was bound: it holds nothing of its node
	// Changes that the process makes by itself.
	Written   = string(kube.Written)
	Ended     = string(kube.Ended)
	Expire    = string(kube.Expire)
	Deadlocks = string(kube.Deadlocks)
)

// operations has those of events.
func operations() []string {
	return []string{Put, Change, Delete, Release, Forget, Expire, Deadlocks, Written, Ended}
}

// Record is a line of a journal. Exactly one of its pointers is set, by its type.
type Record struct {
	Type string `json:"t"`
	// Gen numbers the records of a process, without gaps in a file.
	Gen      uint64    `json:"gen"`
	Time     time.Time `json:"ts"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
}

// Snapshot is the first record of a file. Objects events follow, which put all objects that were known.
type Snapshot struct {
	Version int    `json:"version"`
	Build   string `json:"build"` // of the program
	// Kubernetes is the version that the program is built on. Programs on 1.36 did not write it.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Config is the KubeSchedulerConfiguration in force.
	Config json.RawMessage `json:"config"`
	// Trusted are the other schedulers whose allocations count.
	Trusted []string `json:"trusted,omitempty"`
	Objects int      `json:"objects"`
	// Started is set in the first file of a process. What plugins learn from pods is complete in it.
	Started bool `json:"started,omitempty"`
	// Reserved are the pods that are reserved and not bound.
	Reserved []Decision `json:"reserved,omitempty"`
}

// Event is a change that the scheduler has seen.
type Event struct {
	Op   string `json:"op"`
	Kind string `json:"kind"`
	// Object is what was put; of an object that is gone, it has only the metadata.
	Object json.RawMessage `json:"object,omitempty"`
	// Hidden are fields of the object that its JSON form does not have.
	Hidden map[string]json.RawMessage `json:"hidden,omitempty"`
	// UID and Key name the pod of a release, or of one to forget.
	UID string `json:"uid,omitempty"`
	Key string `json:"key,omitempty"`
}

// Decision is one scheduling cycle of a pod.
type Decision struct {
	Pod     string `json:"pod"` // namespace/name
	UID     string `json:"uid"`
	Profile string `json:"profile"`
	Seed    uint32 `json:"seed"`
	// Pulled are the UIDs of the pods that were taken out of the queue for this cycle: siblings of its pod, and where a
	// sibling was its first pod, the pod itself.
	Pulled []string `json:"pulled,omitempty"`
	Node   string   `json:"node,omitempty"`
	// Feasible of Of nodes passed the filters.
	Feasible int `json:"feasible,omitempty"`
	Of       int `json:"of,omitempty"`
	// Samples are the nodes that were scored where not all nodes of the cluster were looked at, by the number of the
	// search in the cycle: a gang's first cycle looks for a node for each member.
	Samples map[int][]string `json:"samples,omitempty"`
	// Best is the best score of a node, 0 where fewer than two were feasible. Scores are those of the chosen node by
	// plugin, without zeros; none where many nodes are as good.
	Best   int64   `json:"best,omitempty"`
	Scores []Score `json:"scores,omitempty"`
	// Patch is what the Binding records of the reservation.
	Patch map[string]string `json:"patch,omitempty"`
	// Claims are the ResourceClaims that have got devices for the pod, and those of siblings that it shares.
	Claims []Promise `json:"claims,omitempty"`
	// Refused is why the pod has no node, Nominated the node that preemption makes room on.
	Refused   string `json:"refused,omitempty"`
	Nominated string `json:"nominated,omitempty"`
}

// Promise is the devices that a ResourceClaim has in memory alone, until the pod's binding writes them.
type Promise struct {
	Claim      string                       `json:"claim"` // namespace/name
	UID        string                       `json:"uid"`
	Allocation *resourcev1.AllocationResult `json:"allocation"`
}

// promises returns what a decision has of promised claims.
func promises(claims []*resourcev1.ResourceClaim) (list []Promise) {
	for _, c := range claims {
		list = append(list, Promise{c.Namespace + "/" + c.Name, string(c.UID), keepAllocation(c.Status.Allocation)})
	}
	return list
}

// Object returns the claim with its devices. kube-scheduler has claims for extended resources in memory first, under a
// name that no object has; they are those of the pod.
func (p *Promise) Object(pod string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{}
	claim.Namespace, claim.Name, _ = strings.Cut(p.Claim, "/")
	claim.UID, claim.Status.Allocation = types.UID(p.UID), p.Allocation
	if strings.HasPrefix(claim.Name, "<") {
		claim.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		claim.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(pod), Controller: new(true)}}
	}
	return claim
}

// check returns what is wrong with a promise.
func (p *Promise) check() error {
	namespace, name, _ := strings.Cut(p.Claim, "/")
	switch {
	case namespace == "" || name == "":
		return fmt.Errorf("claim: %q is not NAMESPACE/NAME", p.Claim)
	case p.UID == "":
		return errors.New("uid: must not be empty")
	case p.Allocation == nil:
		return errors.New("allocation: must be set")
	}
	return nil
}

// Score is what a plugin adds to the score of a node.
type Score struct {
	Plugin string `json:"plugin"`
	Score  int64  `json:"score"`
}

// written is a record as it is written: the object of an event is encoded with it.
type written struct {
	*Record
	Event *writtenEvent `json:"event,omitempty"`
}

// writtenEvent is an event with its object.
type writtenEvent struct {
	*Event
	Object Object `json:"object,omitempty"`
}

// check returns what is wrong with a record by itself.
func (r *Record) check() error {
	set := 0
	for _, has := range []bool{r.Snapshot != nil, r.Event != nil, r.Decision != nil} {
		if has {
			set++
		}
	}
	own := map[string]bool{
		SnapshotType: r.Snapshot != nil, EventType: r.Event != nil, DecisionType: r.Decision != nil,
	}
	switch known := own[r.Type]; {
	case r.Type != SnapshotType && r.Type != EventType && r.Type != DecisionType:
		return fmt.Errorf("t: %q is not a record of a journal, want %s, %s or %s", r.Type, SnapshotType, EventType,
			DecisionType)
	case set != 1 || !known:
		return fmt.Errorf("t: a record of type %s must have the field %s and no other of them", r.Type, r.Type)
	case r.Snapshot != nil && r.Snapshot.Version != Version:
		return fmt.Errorf("snapshot.version: %d is not supported, want %d: use the tenon of the version that wrote "+
			"the journal, %q", r.Snapshot.Version, Version, r.Snapshot.Build)
	case r.Event != nil && !slices.Contains(operations(), r.Event.Op):
		return fmt.Errorf("event.op: %q is not known, want one of %s", r.Event.Op, strings.Join(operations(), ", "))
	case r.Decision != nil && r.Decision.UID == "":
		return errors.New("decision.uid: must not be empty")
	case r.Decision != nil:
		return r.Decision.check("decision")
	case r.Snapshot != nil:
		for i := range r.Snapshot.Reserved {
			if err := r.Snapshot.Reserved[i].check(fmt.Sprintf("snapshot.reserved[%d]", i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns what is wrong with a decision at a path.
func (d *Decision) check(path string) error {
	for i := range d.Claims {
		if err := d.Claims[i].check(); err != nil {
			return fmt.Errorf("%s.claims[%d].%w", path, i, err)
		}
	}
	return nil
}

// chain is the checksum of the lines of a file.
type chain uint32

// table is that of the checksum.
var table = crc32.MakeTable(crc32.Castagnoli)

// seal returns the line of a record, whose JSON text is given, and adds it to the chain.
func (c *chain) seal(text []byte) []byte {
	*c = chain(crc32.Update(uint32(*c), table, text))
	return fmt.Appendf(text[:len(text)-1], `,"sum":"%08x"}`+"\n", uint32(*c))
}

// tail is the length of what seal adds to the text of a record.
const tail = len(`,"sum":"00000000"}`)

// open returns the text of a line without its end, and adds it to the chain. It fails where the line is not what was
// written after the lines before it.
func (c *chain) open(line []byte) ([]byte, error) {
	if len(line) < tail || !bytes.HasPrefix(line[len(line)-tail:], []byte(`,"sum":"`)) {
		return nil, errors.New("not a record of a journal: it does not end with a field sum")
	}
	text := append(bytes.Clone(line[:len(line)-tail]), '}')
	*c = chain(crc32.Update(uint32(*c), table, text))
	if got := string(line[len(line)-len(`00000000"}`):][:8]); got != fmt.Sprintf("%08x", uint32(*c)) {
		return nil, fmt.Errorf("sum: %q does not match: this line, or one before it, was changed or removed", got)
	}
	return text, nil
}

// BadLine is a line that is not what a scheduler wrote.
type BadLine struct {
	Line int // from 1
	Err  error
}

// Error returns line and cause.
func (b *BadLine) Error() string { return fmt.Sprintf("line %d: %v", b.Line, b.Err) }

// Unwrap returns the cause.
func (b *BadLine) Unwrap() error { return b.Err }

// Reader reads the records of a file.
type Reader struct {
	// chain is the checksum of the lines so far, line the number of the last one, gen that of its record.
	lines *bufio.Reader
	chain chain
	line  int
	gen   uint64
}

// NewReader returns a reader of a file.
func NewReader(file io.Reader) *Reader { return &Reader{lines: bufio.NewReaderSize(file, 1<<16)} }

// Line returns the number of the line that was read last.
func (r *Reader) Line() int { return r.line }

// Next returns the next record, io.EOF after the last one, and a *BadLine for one that is not what was written.
func (r *Reader) Next() (*Record, error) {
	line, err := r.read()
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0 && r.line > 0:
		return nil, io.EOF
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, &BadLine{1, errors.New("the file is empty: a journal begins with a snapshot")}
	}
	r.line++
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &BadLine{r.line, err}
	}
	record := &Record{}
	text, sealed := r.chain.open(bytes.TrimSuffix(line, []byte("\n")))
	if sealed != nil && err != nil {
		return nil, &BadLine{r.line, errors.New("the line is cut: the file does not end with a whole record")}
	}
	// A snapshot of another version is named as such, whatever else the version has changed.
	if text == nil {
		text = line
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	wrong := decoder.Decode(record)
	if record.Snapshot != nil && record.Snapshot.Version != Version {
		wrong, sealed = nil, nil
	}
	if err := errors.Join(sealed, wrong); err != nil {
		return nil, &BadLine{r.line, oneOf(sealed, wrong)}
	}
	if err := r.follow(record); err != nil {
		return nil, &BadLine{r.line, err}
	}
	return record, nil
}

// oneOf returns the cause of a bad line: a wrong checksum explains bad JSON, and not the other way round.
func oneOf(sealed, wrong error) error {
	if sealed != nil {
		return sealed
	}
	return fmt.Errorf("not a record of a journal: %w", wrong)
}

// follow checks a record, and that it comes after the one before.
func (r *Reader) follow(record *Record) error {
	if err := record.check(); err != nil {
		return err
	}
	switch first := r.line == 1; {
	case first && record.Snapshot == nil:
		return fmt.Errorf("t: the first record is of type %s, want %s", record.Type, SnapshotType)
	case !first && record.Snapshot != nil:
		return errors.New("t: a snapshot is only allowed in the first line")
	case !first && record.Gen != r.gen+1:
		return fmt.Errorf("gen: %d follows %d: records between them are missing", record.Gen, r.gen)
	}
	r.gen = record.Gen
	return nil
}

// read returns a line, which is shorter than longestLine.
func (r *Reader) read() (line []byte, err error) {
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > longestLine:
			return line, fmt.Errorf("the line is longer than %d bytes", longestLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}
