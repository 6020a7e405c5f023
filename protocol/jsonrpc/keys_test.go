package jsonrpc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
)

// TestKeys checks which objects are refused for their keys.
func TestKeys(t *testing.T) {
	strict := Keys{Known: []string{"name", "taskId", "_meta", "uri", "skill"}}
	loose := Keys{Known: strict.Known, Loose: true}
	for _, test := range []struct {
		obj           string
		strict, loose error
	}{
		{`{}`, nil, nil},
		{`{"name":1,"taskId":2,"_meta":{},"other":4,"Another":5}`, nil, nil},
		{`{"n\u0061me":1}`, nil, nil},
		{`{"Name":1}`, ErrSpelling, ErrSpelling},
		{`{"name":1,"NAME":2}`, ErrSpelling, ErrSpelling},
		{`{"\u004eame":1}`, ErrSpelling, ErrSpelling},
		{`{"taskid":1}`, ErrSpelling, ErrSpelling},
		{`{"taſkId":1}`, ErrSpelling, ErrSpelling},
		{`{"tas\u212aId":1}`, ErrSpelling, ErrSpelling},
		{`{"\u017f\u212aill":1}`, ErrSpelling, ErrSpelling},
		{`{"ſkıLL":1}`, ErrSpelling, ErrSpelling},
		{`{"_META":1}`, ErrSpelling, ErrSpelling},
		{`{"name\u0000":1}`, ErrSpelling, ErrSpelling},
		{`{"NAME\u0000x":1,"name":2}`, ErrSpelling, ErrSpelling},
		{`{"\u0000name":1,"nam\u0000e":2}`, nil, nil},
		{`{"x\u0000":1,"x":2}`, ErrDuplicate, nil},
		{`{"url":1,"nam":2,"names":3,"task_id":4}`, nil, nil},
		{`{"name":1,"name":2}`, ErrDuplicate, ErrDuplicate},
		{`{"name":1,"n\u0061me":2}`, ErrDuplicate, ErrDuplicate},
		{`{"x":1,"x":2}`, ErrDuplicate, nil},
		{`{"x":1,"X":2}`, ErrDuplicate, nil},
		{`{"straße":1,"STRAßE":2}`, ErrDuplicate, nil},
		{`{"σ":1,"ς":2}`, ErrDuplicate, nil},
		{`{"ks":1,"\u212a\u017f":2}`, ErrDuplicate, nil},
		{`{"I":1,"ı":2}`, ErrDuplicate, nil},
	} {
		for _, k := range []struct {
			keys *Keys
			want error
		}{{&strict, test.strict}, {&loose, test.loose}} {
			err := k.keys.Fields([]byte(test.obj), func(string, []byte) error { return nil })
			if !errors.Is(err, k.want) || (err == nil) != (k.want == nil) {
				t.Errorf("%s, loose %v: %v, want %v", test.obj, k.keys.Loose, err, k.want)
			}
		}
	}
	many := []string{`"` + strings.Repeat("K", 20) + `":1`}
	for i := range 40 {
		many = append(many, `"`+strings.Repeat("k", i+1)+`":0`)
	}
	obj := "{" + strings.Join(many, ",") + "}"
	if err := strict.Fields([]byte(obj), func(string, []byte) error { return nil }); !errors.Is(err, ErrDuplicate) {
		t.Errorf("one of many keys stands twice: %v", err)
	}
}

// TestFoldedAsEncodingJSON checks, for each character that differs from others in case only, that
// a key with it is taken for the same one as encoding/json takes it for.
func TestFoldedAsEncodingJSON(t *testing.T) {
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if unicode.SimpleFold(r) == r && r != 'ı' && r != 'İ' {
			continue
		}
		var one struct {
			Ks *int `json:"ks"`
		}
		for _, key := range []string{string(r) + "s", "k" + string(r)} {
			one.Ks = nil
			quoted, _ := json.Marshal(map[string]int{key: 1}) // strings encode
			if err := json.Unmarshal(quoted, &one); err != nil {
				t.Fatal(err)
			}
			if same := IsSameKey(key, "ks"); same != (one.Ks != nil) {
				t.Errorf("%q is taken for ks: %v, want %v", key, same, one.Ks != nil)
			}
		}
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			if fold(string(r)) != fold(string(other)) {
				t.Errorf("%q and %q are not the same", r, other)
			}
		}
	}
}

// TestEnvelopeInAnotherCase_IsRefused checks each key of the envelope, both alone and beside the
// right one.
func TestEnvelopeInAnotherCase_IsRefused(t *testing.T) {
	messages := map[string]string{
		"jsonrpc": `"2.0"`, "id": "1", "method": `"ping"`, "params": "{}", "result": "{}", "error": "{}",
	}
	for key, value := range messages {
		for _, as := range []string{strings.ToUpper(key), strings.Title(key), strings.ReplaceAll(key, "s", "\u017f")} { //nolint:staticcheck // ASCII
			if as == key {
				continue
			}
			for _, rest := range []string{
				`"jsonrpc":"2.0","id":1,"method":"ping","params":{}`, `"jsonrpc":"2.0","id":1,"result":{}`,
				`"jsonrpc":"2.0","id":1,"error":{}`, `"jsonrpc":"2.0","method":"x"`,
			} {
				if _, err := Parse([]byte(`{` + rest + `,"` + as + `":` + value + `}`)); !errors.Is(err, ErrInvalid) ||
					!errors.Is(err, ErrSpelling) {
					t.Errorf("%s beside %s: %v", as, rest, err)
				}
			}
		}
	}
}
