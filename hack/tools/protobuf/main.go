// Command protobuf writes the Go code of one .proto file beside it: messages and gRPC service. Compiler and plugins are
// Go modules at fixed versions, so that every machine writes the same bytes and none needs protoc.
//
//	protobuf ROOT PATH OUT
//
// PATH is the file below ROOT, and the name under which it is registered; the code is written into the folder OUT.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: protobuf ROOT PATH OUT")
		os.Exit(2)
	}
	if err := generate(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "protobuf:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, root, name, out string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	}
	for _, p := range []struct{ plugin, parameter string }{
		{"protoc-gen-go", "paths=source_relative"},
		// A server that misses a method does not compile, instead of answering that it has none.
		{"protoc-gen-go-grpc", "paths=source_relative,require_unimplemented_servers=false"},
	} {
		request.Parameter = proto.String(p.parameter)
		if err := run(ctx, p.plugin, request, out); err != nil {
			return fmt.Errorf("%s: %w", p.plugin, err)
		}
	}
	return nil
}

// run asks a plugin for its files.
func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest, out string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(answer, response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(out, path.Base(f.GetName())), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
