package descheduler

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tenon-project/tenon/api/config/strict"
)

var (
	//go:embed texts.json
	textsJSON []byte
	texts     = decodeTexts()
)

func decodeTexts() (all map[string]string) {
	if err := json.Unmarshal(textsJSON, &all); err != nil {
		panic(fmt.Sprintf("descheduler: texts.json is part of the program: %v", err))
	}
	return all
}

// says returns what a field has for the name of a tag.
func says(tag reflect.StructTag, name string) string {
	if text, ok := texts[tag.Get(name)]; ok {
		return text
	}
	return tag.Get(name)
}

// inspector holds values to the tags of their fields.
type inspector struct {
	*strict.Document

	problems strict.Problems
	warnings []string
}

// arguments reads the value at a path into a struct, fills its defaults and checks it.
func (i *inspector) arguments(path string, into any) {
	if wrong := i.Decode(path, into); len(wrong) > 0 {
		i.problems = append(i.problems, wrong...)
		return
	}
	i.value(path, "", reflect.ValueOf(into).Elem())
}

func (i *inspector) refuse(path, format string, args ...any) {
	i.problems = append(i.problems, i.Problem(path, format, args...))
}

// warn adds a warning with its place.
func (i *inspector) warn(path, text string) {
	i.warnings = append(i.warnings, i.Problem(path, "%s", text).Error())
}

// fields checks those of a struct.
func (i *inspector) fields(path string, v reflect.Value) {
	for f, value := range v.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "inline" {
			i.fields(path, value)
			continue
		}
		below := strings.TrimPrefix(path+"."+name, ".")
		if !i.Has(below) {
			if text := says(f.Tag, "default"); text != "" {
				if err := json.Unmarshal([]byte(text), value.Addr().Interface()); err != nil {
					panic(fmt.Sprintf("descheduler: the default of %s is part of the program: %v", name, err))
				}
			}
		} else if text := says(f.Tag, "unused"); text != "" {
			i.warn(below, "has no effect: "+text)
		} else if text := says(f.Tag, "refused"); text != "" {
			i.refuse(below, "is not allowed: %s", text)
			continue
		}
		i.value(below, f.Tag, value)
	}
}

// value checks one value, and all below it.
func (i *inspector) value(path string, tag reflect.StructTag, v reflect.Value) {
	switch value := v.Interface().(type) {
	case *metav1.LabelSelector:
		if _, err := metav1.LabelSelectorAsSelector(value); err != nil {
			i.refuse(path, "is not a label selector: %v", err)
		}
		return
	case metav1.Duration:
		i.number(path, tag, value.Seconds(), "s", true)
		return
	case intstr.IntOrString:
		i.amount(path, value)
		return
	case *metav1.DeleteOptions:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			i.value(path, tag, v.Elem())
		}
	case reflect.Struct:
		i.fields(path, v)
	case reflect.Slice:
		for n := range v.Len() {
			i.value(fmt.Sprintf("%s[%d]", path, n), tag, v.Index(n))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			i.value(path+"."+key.String(), tag, v.MapIndex(key))
		}
	case reflect.String:
		i.text(path, tag, v.String())
	case reflect.Int32, reflect.Int64:
		i.number(path, tag, float64(v.Int()), "", i.Has(path))
	case reflect.Float64:
		i.number(path, tag, v.Float(), "", i.Has(path))
	}
}

func (i *inspector) text(path string, tag reflect.StructTag, text string) {
	if allowed := strings.Split(says(tag, "allowed"), "|"); says(tag, "allowed") != "" && i.Has(path) &&
		!slices.Contains(allowed, text) {
		i.refuse(path, "%q is not allowed: use %s", text, strings.Join(allowed, ", "))
	}
	if text == "" && !optional(tag) {
		i.refuse(path, "must be there")
	}
	if tag.Get("labels") != "" {
		if _, err := labels.Parse(text); err != nil {
			i.refuse(path, "is not a label selector: %v", err)
		}
	}
}

// number checks a number that the file has, or one that must be there.
func (i *inspector) number(path string, tag reflect.StructTag, n float64, unit string, written bool) {
	least, most := tag.Get("min"), tag.Get("max")
	low, _ := strconv.ParseFloat(least, 64)
	high, _ := strconv.ParseFloat(most, 64)
	switch {
	case !written && optional(tag):
	case least != "" && n < low || most != "" && n > high:
		limits := "from " + least + unit + " on"
		if most != "" {
			limits = "from " + least + " to " + most
		}
		i.refuse(path, "%s is not allowed: use a number %s", strconv.FormatFloat(n, 'g', -1, 64)+unit, limits)
	case n == 0 && written && says(tag, "zero") != "":
		i.warn(path, says(tag, "zero"))
	}
}

// optional reports whether a value may be absent.
func optional(tag reflect.StructTag) bool {
	return strings.Contains(tag.Get("json"), "omitempty") || tag.Get("json") == ""
}

// amount checks a number of pods or a share of replicas.
func (i *inspector) amount(path string, a intstr.IntOrString) {
	n := a.IntValue()
	if text, percent := strings.CutSuffix(a.StrVal, "%"); a.Type == intstr.String {
		var err error
		if n, err = strconv.Atoi(text); err != nil || !percent || n > 100 {
			n = 0
		}
	}
	if n < 1 {
		i.refuse(path, "%q is not allowed: use a number from 1 on, or from 1%% to 100%%", a.String())
	}
}
