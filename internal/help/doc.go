// Package help gives commands their texts, which are files beside the code of the commands: help/VERB.txt has the use
// of the verb in its first line, what it does in a sentence in its second, then all that is to be said of it and,
// behind the line "Examples:", its examples.
package help
