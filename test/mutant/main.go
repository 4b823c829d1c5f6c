// Command mutant asks whether the tests would notice a fault. It puts one fault at a time into a file that decides:
// another comparison, constant or operator, a condition that is negated, a statement or a case of a switch that is left
// out. Then it runs the tests of the file's package, and if these pass, those of up to four packages that import it.
//
//	go run ./test/mutant                   400 mutants of a fixed seed (make mutants)
//	go run ./test/mutant -list -match F    print the mutants whose line contains F, such as a file's path; run no test
//	go run ./test/mutant -match F -n 0     test all of them
//	go run ./test/mutant -from 120         go on after an interrupt, which names where it stopped
//
// The draw and its results are the same every time, since the property tests have fixed seeds. A survivor is a fault
// that no test notices: it is mended by a test, or explained.yaml says why the program still decides the same. The
// command fails where a survivor is neither, or where fewer than 92 of 100 mutants of the core fail in their own
// package.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

const module = "github.com/tenon-project/tenon"

// aim is how many of 100 mutants of the core its own packages' tests must notice.
const aim = 92

// deciding are the folders and files outside of the core that decide. Their tests take longer: a quarter of the draw.
var deciding = []string{
	"internal/control/gangstatus", "internal/control/nodestrategy", "internal/control/quotarevoke",
	"internal/control/quotastatus", "internal/desched/policy", "internal/desched/migration", "internal/kube/convert",
	"internal/kube/reservationstatus.go", "internal/sched/deviceshare", "internal/sched/elasticquota",
	"internal/sched/loadaware", "internal/sched/nodenumaresource", "internal/sched/placement",
	"internal/sched/reserving",
}

// explanation says why a mutant changes no decision. It names the mutant by what stays if lines move. Line is the text
// of its line, without white space around it.
type explanation struct {
	File, Function, Line, Was, Becomes, Why string
}

//go:embed explained.yaml
var explained []byte

// result is a mutant with the verdict on it.
type result struct {
	mutant
	verdict verdict
	why     string
}

func main() {
	seed := flag.Uint64("seed", 1, "draw other mutants")
	n := flag.Int("n", 400, "how many mutants; 0 for all")
	from := flag.Int("from", 0, "leave out as many of the draw, to go on after a run that was interrupted")
	match := flag.String("match", "", "only mutants whose line contains this text")
	list := flag.Bool("list", false, "print the mutants, run no test")
	jobs := flag.Int("j", 2, "how many at once")
	tags := flag.String("tags", "nomsgpack", "build tags")
	limit := flag.Duration("limit", 4*time.Minute, "time for the tests of a package")
	most := flag.Int("dependents", 4, "packages that import a mutant's, if its own tests pass")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, options{*seed, *n, *from, *match, *list, *jobs, *tags, *limit, *most}, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	seed  uint64
	n     int
	from  int
	match string
	list  bool
	jobs  int
	tags  string
	limit time.Duration
	most  int
}

func run(ctx context.Context, o options, out io.Writer) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	core, others, err := candidates(root)
	if err != nil {
		return err
	}
	other := func(m mutant) bool { return !strings.Contains(m.String(), o.match) }
	core, others = slices.DeleteFunc(core, other), slices.DeleteFunc(others, other)
	drawn := draw(core, others, o.seed, o.n == 0)
	if o.list {
		for _, m := range drawn {
			fmt.Fprintln(out, m)
		}
		return nil
	}
	results, err := testAll(ctx, root, o, drawn[min(o.from, len(drawn)):], out)
	return errors.Join(err, report(out, results))
}

func (m mutant) String() string {
	shown := func(text string) string {
		line, _, more := strings.Cut(text, "\n")
		if more {
			line += " …"
		}
		return line
	}
	if m.Becomes == "" {
		return fmt.Sprintf("%s:%d %s: without `%s`", m.File, m.Line, m.Function, shown(m.Was))
	}
	return fmt.Sprintf("%s:%d %s: `%s` becomes `%s`", m.File, m.Line, m.Function, shown(m.Was), shown(m.Becomes))
}

// candidates returns all mutants of the core and of the other files that decide.
func candidates(root string) (core, others []mutant, err error) {
	read := func(place string, to *[]mutant) error {
		return filepath.WalkDir(filepath.Join(root, place), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			base := filepath.Base(name)
			if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") ||
				strings.HasPrefix(base, "zz_generated") {
				return nil
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found, err := mutants(module+"/"+filepath.Dir(name), name, source)
			*to = append(*to, found...)
			return err
		})
	}
	if err := read("internal/core", &core); err != nil {
		return nil, nil, err
	}
	for _, place := range deciding {
		if err := read(place, &others); err != nil {
			return nil, nil, err
		}
	}
	return core, others, nil
}

// draw returns the mutants in the order of a seed: of each four, three are of the core. A change elsewhere in a file
// leaves the others in their order, so that a survivor is drawn again after the test that was written for it.
func draw(core, others []mutant, seed uint64, all bool) []mutant {
	if all {
		return slices.Concat(core, others)
	}
	mix(core, seed)
	mix(others, seed)
	var drawn []mutant
	for len(core)+len(others) > 0 {
		k, l := min(3, len(core)), min(1, len(others))
		drawn = append(drawn, core[:k]...)
		drawn = append(drawn, others[:l]...)
		core, others = core[k:], others[l:]
	}
	return drawn
}

// mix sorts mutants by a hash of the seed and of what each is: its place in its function, not its line.
func mix(list []mutant, seed uint64) {
	seen, keys := map[string]int{}, make(map[mutant]uint64, len(list))
	for _, m := range list {
		name := strings.Join([]string{m.File, m.Function, m.Was, m.Becomes}, "\x00")
		sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%d\x00%s", seed, seen[name], name))
		seen[name]++
		keys[m] = binary.BigEndian.Uint64(sum[:])
	}
	slices.SortStableFunc(list, func(a, b mutant) int { return cmp.Compare(keys[a], keys[b]) })
}

// testAll tests the mutants that were drawn, see testEach.
func testAll(ctx context.Context, root string, o options, drawn []mutant, out io.Writer) ([]result, error) {
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	j := &tester{root: root, tags: o.tags, most: o.most, limit: o.limit, folder: folder}
	if err := j.importers(ctx); err != nil {
		return nil, err
	}
	known, err := explanations()
	if err != nil {
		return nil, err
	}
	return testEach(ctx, o, drawn, known, j.try, out)
}

// testEach tries the first o.n mutants that compile, o.jobs at once, and prints each survivor when it is found. With an
// error it returns the results of those before the first one that has none, and names that one.
func testEach(ctx context.Context, o options, drawn []mutant, known []explanation,
	try func(context.Context, int, mutant) (verdict, error), out io.Writer,
) ([]result, error) {
	var (
		mu       sync.Mutex
		next     int
		results  = make([]result, len(drawn))
		done     = make([]bool, len(drawn))
		programs int
		first    error
		wait     sync.WaitGroup
	)
	for range o.jobs {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				if i == len(drawn) || first != nil || o.n > 0 && programs >= o.n {
					mu.Unlock()
					return
				}
				next++
				mu.Unlock()
				v, err := try(ctx, i, drawn[i])
				r := result{mutant: drawn[i], verdict: v, why: explain(known, drawn[i])}
				mu.Lock()
				switch {
				case err != nil && first == nil:
					first = err
				case err == nil:
					results[i], done[i] = r, true
					if v != uncompiled {
						programs++
					}
					if v == survived || v == dependents {
						fmt.Fprintf(out, "%d noticed by %s: %s %s\n", o.from+i, v, drawn[i], r.why)
					}
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if first != nil { // mutants behind the first one that has no result are tested again
		at := slices.Index(done, false)
		results, first = results[:at], fmt.Errorf("stopped at mutant %d: %w", o.from+at, first)
	}
	return slices.DeleteFunc(results, func(r result) bool { return r.verdict == uncompiled }), first
}

func explanations() (known []explanation, err error) {
	if err := yaml.UnmarshalStrict(explained, &known); err != nil {
		return nil, fmt.Errorf("explained.yaml: %w", err)
	}
	return known, nil
}

func explain(known []explanation, m mutant) string {
	for i := range known {
		if e := &known[i]; e.covers(m) {
			return e.Why
		}
	}
	return ""
}

func (e *explanation) covers(m mutant) bool {
	return e.File == m.File && e.Function == m.Function && e.Line == m.Text && strings.HasPrefix(m.Was, e.Was) &&
		e.Becomes == m.Becomes
}

// report prints a row for each package, and what is wrong.
func report(out io.Writer, results []result) error {
	type row struct{ all, own, dependents, explained, survived int }
	rows, sum := map[string]*row{}, map[bool]*row{true: {}, false: {}}
	var wrong []error
	for _, r := range results {
		inCore := strings.HasPrefix(r.File, "internal/core/")
		name := strings.TrimPrefix(r.Package, module+"/")
		if rows[name] == nil {
			rows[name] = &row{}
		}
		for _, x := range []*row{rows[name], sum[inCore]} {
			x.all++
			switch {
			case r.verdict == killed:
				x.own++
			case r.verdict == dependents:
				x.dependents++
			case r.why != "":
				x.explained++
			default:
				x.survived++
			}
		}
		if r.verdict == survived && r.why == "" {
			wrong = append(wrong, fmt.Errorf("no test notices %s", r.mutant))
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tMUTANTS\tOWN TESTS\tDEPENDENTS\tEXPLAINED\tSURVIVED")
	line := func(name string, x row) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", name, x.all, x.own, x.dependents, x.explained, x.survived)
	}
	names := make([]string, 0, len(rows))
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line(name, *rows[name])
	}
	line("the core", *sum[true])
	line("others", *sum[false])
	if err := w.Flush(); err != nil {
		return err
	}
	if c := sum[true]; c.own*100 < (c.all-c.explained)*aim {
		wrong = append(wrong, fmt.Errorf("tests of the core's own packages notice %d of %d mutants, less than %d %%",
			c.own, c.all-c.explained, aim))
	}
	return errors.Join(wrong...)
}
