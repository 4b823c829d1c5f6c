package inside

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// Field returns a field of what owner points to, or of what its fields point to along a path of names. A field that is
// not there, or has another type, is an error: a new version of Kubernetes ends at start, and not with a part that is
// not replaced.
func Field[T any](owner any, path ...string) (*T, error) {
	v := reflect.ValueOf(owner)
	for _, name := range path {
		for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || !v.CanAddr() {
			v = reflect.Value{}
			break
		}
		v = v.FieldByName(name)
	}
	if v.IsValid() && v.CanAddr() && v.Type() == reflect.TypeFor[T]() {
		return (*T)(unsafe.Pointer(v.UnsafeAddr())), nil
	}
	return nil, fmt.Errorf("%T has no field %s of type %s", owner, strings.Join(path, "."), reflect.TypeFor[T]())
}
