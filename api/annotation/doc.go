// Package annotation holds every label and annotation key that Tenon reads or writes, with a typed codec for each value
// that has a shape.
//
//	Parse…  text → value, warnings, *Error  accepts every alias, both spellings of a quantity, null for an empty list
//	String  value → text                    writes the canonical form only; the same value gives the same bytes
//
// Values that people write are read strictly: a wrong type or an unknown policy is an *Error that names the byte and
// the field, an unknown field is a Warning. Values that components write use the same readers, whose callers drop the
// warnings.
//
// The names are those of Koordinator, so that a cluster can move in both directions; keys under tenon.sh are our own.
package annotation
