package archtest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const kube = module + "/internal/kube"

// fed are the accounts of internal/kube, which internal/kube/accounts feeds.
var fed = []string{"Gangs", "Kinds", "Loads", "Quotas", "Reservations", "Store"}

// inFront are the functions that set which account gets an event first.
var inFront = []string{"Deliver", "Distinct", "First", "Mapped", "WithReservePods"}

// decided are the calls that change an account by a decision of the scheduler rather than by an event, by folder.
var decided = map[string][]string{
	"internal/sched/follow":    {"Store.RemovePod"},                   // the node has rejected the pod
	"internal/sched/loadaware": {"Loads.RemovePod"},                   // its reservation has ended
	"internal/sched/reserving": {"Quotas.PutPod", "Quotas.RemovePod"}, // it makes room for its user
}

// TestOneTableFeedsTheAccounts: what puts objects into accounts, and in which order, is in internal/kube/accounts.
func TestOneTableFeedsTheAccounts(t *testing.T) {
	packages := load(t)
	var users []string
	for importPath, p := range packages {
		if folder, ours := folderOf(importPath); ours && !below(folder, "test") && slices.Contains(p.Imports, kube) {
			users = append(users, importPath)
		}
	}
	found, checked := map[string][]string{}, sources{packages, token.NewFileSet(), map[string]*types.Package{}}
	for _, user := range users {
		uses := map[*ast.Ident]types.Object{}
		checked.check(user, uses)
		folder, _ := folderOf(user)
		for _, o := range uses {
			if f, ok := o.(*types.Func); ok && feeds(f) {
				found[folder] = append(found[folder], nameOf(f))
			}
		}
	}
	const table = "internal/kube/accounts"
	if len(users) < 20 || len(found[table]) < 30 {
		t.Fatalf("of %d packages only %v feed accounts: the test overlooks the table", len(users), found)
	}
	for folder, names := range found {
		for _, name := range names {
			if folder != table && !slices.Contains(decided[folder], name) {
				t.Errorf("%s uses %s: put objects into accounts by a table of %s", folder, name, table)
			}
		}
	}
	for folder, names := range decided {
		for _, name := range names {
			if !slices.Contains(found[folder], name) {
				t.Errorf("%s does not use %s any more", folder, name)
			}
		}
	}
}

// sources imports the packages of the module from their sources, without what they have of other modules.
type sources struct {
	packages  map[string]goPackage
	positions *token.FileSet
	checked   map[string]*types.Package
}

// Import returns a package of the module. One of another module is unknown to its users.
func (s sources) Import(importPath string) (*types.Package, error) {
	if _, ours := folderOf(importPath); !ours {
		return nil, errors.New("of another module")
	}
	if s.checked[importPath] == nil {
		s.checked[importPath] = s.check(importPath, nil)
	}
	return s.checked[importPath], nil
}

// check returns a package, and records what its identifiers denote.
func (s sources) check(importPath string, uses map[*ast.Ident]types.Object) *types.Package {
	p := s.packages[importPath]
	var files []*ast.File
	for _, name := range p.GoFiles {
		if f, err := parser.ParseFile(s.positions, filepath.Join(p.Dir, name), nil, 0); err == nil {
			files = append(files, f)
		}
	}
	unknown := types.Config{Importer: s, Error: func(error) {}, FakeImportC: true} // what is of another module
	checked, _ := unknown.Check(importPath, s.positions, files, &types.Info{Uses: uses})
	return checked
}

// feeds reports whether a function puts objects into an account, or sets which account gets an event first.
func feeds(f *types.Func) bool {
	if f.Pkg() == nil || f.Pkg().Path() != kube {
		return false
	}
	account, _, isMethod := strings.Cut(nameOf(f), ".")
	if slices.Contains(inFront, f.Name()) {
		return true
	}
	return isMethod && slices.Contains(fed, account) &&
		(strings.HasPrefix(f.Name(), "Put") || strings.HasPrefix(f.Name(), "Remove"))
}

// nameOf returns the name of a function, or of a method with its type.
func nameOf(f *types.Func) string {
	receiver := f.Signature().Recv()
	if receiver == nil {
		return f.Name()
	}
	typ := receiver.Type()
	if pointer, ok := typ.(*types.Pointer); ok {
		typ = pointer.Elem()
	}
	if named, ok := typ.(*types.Named); ok {
		return named.Obj().Name() + "." + f.Name()
	}
	return f.Name()
}
