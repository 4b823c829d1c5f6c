package vary

import (
	"fmt"
	"reflect"
)

// Kinds returns another value of a type that is changed as a whole; false for types that are changed inside.
type Kinds func(t reflect.Type) (reflect.Value, bool)

// Whole makes Kinds of values: each stands for another value of its type.
func Whole(values ...any) Kinds {
	return func(t reflect.Type) (reflect.Value, bool) {
		for _, v := range values {
			if reflect.TypeOf(v) == t {
				return reflect.ValueOf(v), true
			}
		}
		return reflect.Value{}, false
	}
}

// Fill sets every field of *p that is zero, nested ones too: numbers to 1, lists to one element.
func Fill(p any, whole Kinds) { fill(reflect.ValueOf(p).Elem(), whole) }

func fill(v reflect.Value, whole Kinds) {
	if other, ok := whole(v.Type()); ok {
		if v.IsZero() && v.Kind() == reflect.Pointer {
			v.Set(other)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), whole)
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), whole)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			fill(v.Index(i), whole)
		}
	default:
		if v.IsZero() {
			change(v)
		}
	}
}

// Each calls visit once for every field of *p with that field changed, and names it; pointers are also set to nil,
// lists cut. *p is as before when it returns.
func Each(p any, whole Kinds, visit func(field string)) {
	each(reflect.ValueOf(p).Elem(), whole, "", visit)
}

func each(v reflect.Value, whole Kinds, path string, visit func(string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	defer v.Set(old)
	if other, ok := whole(v.Type()); ok {
		v.Set(other)
		visit(path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			each(v.Field(i), whole, path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Pointer:
		v.SetZero()
		visit(path + " nil")
		v.Set(reflect.New(v.Type().Elem()))
		v.Elem().Set(old.Elem())
		each(v.Elem(), whole, path, visit)
	case reflect.Slice:
		last := v.Len() - 1
		v.Set(old.Slice(0, last))
		visit(path + " cut")
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, 0), old))
		for i := range v.Len() {
			each(v.Index(i), whole, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	default:
		change(v)
		visit(path)
	}
}

// change gives a plain value another one.
func change(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanFloat():
		v.SetFloat(v.Float() + 1)
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	default:
		panic(fmt.Sprintf("vary: no other value of %v is known: name one in Whole", v.Type()))
	}
}
