package redis

import "fmt"

// keys are the names of a namespace. The braces put them into one hash slot.
//
//	{<namespace>}:meta      a hash: what the script remembers, such as a random text for the history
//	{<namespace>}:sessions  a sorted set: sessions and their deadlines
//	{<namespace>}:tickets   a hash: by number, the session, the state and a record
//	{<namespace>}:log       a stream: the last changes
//	{<namespace>}:pauses    a hash: by name, the end in microseconds
//	{<namespace>}:changes:0 a channel: new entries of the log, with the number of the database
type keys struct {
	namespace, channel string
	all                []string // as the script expects them
}

func keysOf(namespace string, database int) keys {
	k := keys{namespace: namespace, channel: fmt.Sprintf("{%s}:changes:%d", namespace, database)}
	for _, name := range []string{"meta", "sessions", "tickets", "log", "pauses"} {
		k.all = append(k.all, "{"+namespace+"}:"+name)
	}
	return k
}

// rights are all that the user needs, for ACL SETUSER.
func (k keys) rights() string {
	return fmt.Sprintf("~{%s}:* &{%[1]s}:* +@read +@write +@scripting +@pubsub +@connection +info +time", k.namespace)
}
