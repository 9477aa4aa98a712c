package uniqueids

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "ids",
		Short: "Generates and decodes request IDs",
		Long: `
Generates IDs of the schemes of the unique_ids handler, and decodes IDs of these
schemes, of Apache's mod_unique_id and of nginx's ngx_txid. It also decodes the
header field traceparent.`,
		Usage: "new|decode",
		CobraFunc: func(cmd *cobra.Command) {
			command.Group(cmd, idsNewCommand(), idsDecodeCommand())
		},
	})
}

func idsNewCommand() *cobra.Command {
	var schemes []string
	for _, kind := range kinds {
		if !kind.ofTrace {
			schemes = append(schemes, kind.scheme)
		}
	}
	cmd := &cobra.Command{
		Use:   "new [--scheme " + strings.Join(schemes, "|") + "] [-n N] [--shards N]",
		Short: "Prints new IDs, one per line",
		Long: `
Prints new IDs, one per line.

With --scheme call_number, each call reserves 16,384 numbers in Caddy's default
storage, which servers without a storage option use.`,
		Args: cobra.NoArgs,
	}
	scheme := cmd.Flags().String("scheme", schemes[0], "one of "+strings.Join(schemes, ", "))
	_ = cmd.RegisterFlagCompletionFunc("scheme",
		cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoFileComp))
	n := cmd.Flags().IntP("number", "n", 1, "how many")
	shards := cmd.Flags().Int("shards", 1, "number of shards of a sharded_id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(schemes, *scheme) {
			return fmt.Errorf("--scheme %q: expected one of %s", *scheme, strings.Join(schemes, ", "))
		}
		if err := cmp.Or(directive.AtLeast(1).Check("--number", *n), shardsRange.Check("--shards", *shards)); err != nil {
			return err
		}
		u := &Handler{Layout: uniqueid.Classic.String(), Node: nodeAuto, Shards: *shards, storage: caddy.DefaultStorage, logger: zap.NewNop()}
		at := slices.IndexFunc(kinds, func(k kind) bool { return k.scheme == *scheme })
		newID, err := kinds[at].open(u)
		out := bufio.NewWriter(cmd.OutOrStdout())
		for i := 0; i < *n && err == nil; i++ {
			var id string
			if id, err = newID(&requestIDs{handler: u, ctx: cmd.Context()}); err == nil {
				fmt.Fprintln(out, id)
			}
		}
		return errors.Join(err, out.Flush())
	}
	return cmd
}

func idsDecodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "decode [ID...] [--json]",
		Short:             "Decodes IDs",
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: `
Prints the scheme of each ID, its time in UTC, and every field. If an ID fits
several schemes, all of them are printed. A UUIDv7 and a traceparent are printed
with their txid, and a txid with the first and the last UUIDv7 that contain it.

Without arguments, the command reads IDs from standard input, one per line. It
exits with status 1 if it could not decode one of them.

An ID that begins with a hyphen looks like a flag; write -- before it.`,
	}
	asJSON := cmd.Flags().Bool("json", false, "print a JSON object for each ID, one per line")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		cmd.SilenceUsage = true // a bad ID is not a usage error
		print, failed := printText, 0
		if *asJSON {
			print = printJSON
		}
		decode := func(id string) {
			id = strings.TrimSpace(id) // a line of curl ends in a carriage return
			readings, err := uniqueid.Decode(id)
			if err == nil {
				err = print(cmd.OutOrStdout(), id, readings)
			}
			if err != nil {
				failed++
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}
		}
		for _, id := range ids {
			decode(id)
		}
		lines := bufio.NewReader(cmd.InOrStdin())
		for more := len(ids) == 0; more; {
			line, err := lines.ReadString('\n') // of any length, unlike a Scanner's
			if err != nil && err != io.EOF {
				return fmt.Errorf("reading IDs from standard input: %w", err)
			}
			if more = err == nil; strings.TrimSpace(line) != "" {
				decode(line)
			}
		}
		if failed > 0 {
			return fmt.Errorf("%d of the IDs could not be read", failed)
		}
		return nil
	}
	return cmd
}

// printJSON prints the readings of an ID as an object.
func printJSON(w io.Writer, id string, readings []uniqueid.Decoded) error {
	return command.WriteJSON(w, "", struct {
		ID       string             `json:"id"`
		Readings []uniqueid.Decoded `json:"readings"`
	}{id, readings})
}

// printText prints the readings of an ID for people, who may have gone.
func printText(w io.Writer, id string, readings []uniqueid.Decoded) error {
	fmt.Fprintln(w, command.Printable(id))
	if len(readings) > 1 {
		fmt.Fprintf(w, "  has %d readings:\n", len(readings))
	}
	for _, r := range readings {
		row := func(name string, value any) { fmt.Fprintf(w, "  %-14s %v\n", name, value) }
		if row("scheme", r.Scheme); r.Layout != "" {
			row("layout", r.Layout)
		}
		if !r.Time.IsZero() {
			row("time", r.Time.Format(time.RFC3339Nano))
		}
		for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
			row(name, r.Fields[name])
		}
		if r.Note != "" {
			row("note", r.Note)
		}
	}
	return nil
}
