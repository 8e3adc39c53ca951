package pages

import (
	"html/template"
	"strconv"
	"text/template/parse"
)

func problems() []Problem {
	return []Problem{
		WrongCredentials, WrongCode, TooManyTries, LoginUnavailable, UnknownUserCode,
		CodeExpired, MissingCredential,
	}
}

func failures() []FailureReason {
	return []FailureReason{
		BadRequest, UnknownAgent, AgentRefused, Expired, OtherBrowser, NotOffered,
		TooMany, Unavailable, LoginFailed, LinkExpired, NotFound, CrossSite,
	}
}

// fixedKeys are those of the texts that code asks for rather than a template.
func fixedKeys() map[string]bool {
	keys := make(map[string]bool)
	for _, key := range []string{
		"agents.connected", "agents.used", "agents.unused", "agents.expires", "agents.endless",
		"agents.ended.one", "agents.ended.other", "date", "date.time",
		"footer.support", "footer.privacy", "footer.terms",
		scopePrefix + readScope, scopePrefix + writeScope,
	} {
		keys[key] = true
	}
	for month := range 12 {
		keys["month."+strconv.Itoa(month+1)] = true
	}
	for _, p := range problems() {
		keys["problem."+string(p)] = true
	}
	for _, f := range failures() {
		for _, which := range []string{"title", "text", "action"} {
			keys["failure."+string(f)+"."+which] = true
		}
	}
	return keys
}

// collectKeys adds the keys that templates give to T and Plain.
func collectKeys(keys map[string]bool, t *template.Template) {
	for _, one := range t.Templates() {
		if one.Tree != nil {
			collectFrom(keys, one.Tree.Root)
		}
	}
}

func collectFrom(keys map[string]bool, node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			collectFrom(keys, child)
		}
	case *parse.ActionNode:
		collectFrom(keys, n.Pipe)
	case *parse.TemplateNode:
		collectFrom(keys, n.Pipe)
	case *parse.IfNode:
		collectBranch(keys, &n.BranchNode)
	case *parse.RangeNode:
		collectBranch(keys, &n.BranchNode)
	case *parse.WithNode:
		collectBranch(keys, &n.BranchNode)
	case *parse.PipeNode:
		if n == nil {
			return
		}
		for _, command := range n.Cmds {
			collectCommand(keys, command)
		}
	}
}

func collectBranch(keys map[string]bool, n *parse.BranchNode) {
	collectFrom(keys, n.Pipe)
	collectFrom(keys, n.List)
	collectFrom(keys, n.ElseList)
}

func collectCommand(keys map[string]bool, n *parse.CommandNode) {
	for i, argument := range n.Args {
		collectFrom(keys, argument)
		key, ok := argument.(*parse.StringNode)
		if !ok || i == 0 {
			continue
		}
		switch n.Args[i-1].String() {
		case ".T", "$.T", ".Plain", "$.Plain":
			keys[key.Text] = true
		}
	}
}
