package demo

import "strings"

// phrases are the shop's sentences in one language. Dish names and numbers are the same in all.
type phrases struct {
	stage                           map[Stage]string
	statusShort, status, statusLong string
	due, withRider, arrived         string
	unknownOrder, whichOrder        string
	cancelCall, cancelKitchen       string
	cancelTooLate                   string
	signInForOrders, noOrders       string
	signInForAddress, missingScope  string
	address, addressChanged         string
	whichAddress                    string
	allergens, noAllergens, diets   string
	hours, menu, orderOnSite        string
	phone, person, welcome, goodbye string
	callYou, callReason, here       string
	kitchen, story                  string
	greeting, help, unclear         string
}

// phrasesFor picks the language of a locale such as de-DE (RFC 5646); English for any other.
func phrasesFor(locale string) phrases {
	language, _, _ := strings.Cut(strings.ToLower(locale), "-")
	if language == "de" {
		return german()
	}
	return english()
}

func english() phrases {
	return phrases{
		stage:            map[Stage]string{Cooking: "in the wok", OnItsWay: "on its way", Delivered: "delivered"},
		statusShort:      "Order %s is %s, due %s.",
		status:           "Order %s is %s.",
		statusLong:       "Your order %s (%s) is %s.",
		due:              "It should be with you at %s.",
		withRider:        "%s is bringing it and should be with you at %s.",
		arrived:          "It was handed over at %s.",
		unknownOrder:     "I can't find an order %s. The number has four digits and is in the confirmation mail, such as 1042.",
		whichOrder:       "Which order should be cancelled? Please tell me its number, such as 1042.",
		cancelCall:       "Order %s is being cooked. For your safety I can't cancel it without knowing that it is yours: please call 030 555 0142 within the next ten minutes.",
		cancelKitchen:    "Order %s is being cooked already, so only the kitchen can stop it: please call 030 555 0142 within the next ten minutes.",
		cancelTooLate:    "Order %s is %s already, so it can't be cancelled any more. If something is wrong with it, call 030 555 0142 and we will put it right.",
		signInForOrders:  "To look up your orders I need you to be signed in to your Noodle Bar account, with permission to read. With an order's number, such as 1042, I can tell you right away how far it is.",
		noOrders:         "There is no order of yours today.",
		signInForAddress: "For your delivery address I need you to be signed in to your Noodle Bar account, with the permission “addresses”.",
		missingScope:     "You are signed in, but I haven't been given the permission “%s” that this needs. Please sign in again and tick it.",
		address:          "We deliver to %s.",
		addressChanged:   "Done: from your next order on we deliver to %s.",
		whichAddress:     "What is the new address? Please tell me street, number, postcode and town.",
		allergens:        "%s contains: %s.",
		noAllergens:      "%s has none of the fourteen major allergens.",
		diets:            "Vegetarian: %s. Without wheat: %s. Name a dish and I list its allergens; all are cooked in one kitchen, so traces are possible.",
		hours:            "We are open every day from 11:30 to 22:30; the kitchen closes at 22:00.",
		menu:             "Today we have:",
		orderOnSite:      "Orders are placed on our website for now; I can tell you about the menu, allergens, opening hours and your orders.",
		phone:            "You reach us by phone at 030 555 0142, every day from 11:30 to 22:30.",
		person:           "I'm getting somebody of our team; please stay. You also reach us by phone at 030 555 0142.",
		callYou:          "I'd like to ask the customer something myself. Can they talk to us?",
		callReason:       "We have a question about the order that only the customer can answer.",
		here:             "You are talking to us already: what is it about?",
		kitchen:          "I asked the kitchen: they have a hand free, and a new order takes about ten minutes.",
		story:            "Everything is cooked to order, and the broth simmers over night.",
		goodbye:          "Goodbye, and enjoy your meal!",
		help: "Try these: “Where is my order?” needs your account, so I ask you to sign in; “Tell me about the menu” comes piece by piece; " +
			"“Check the kitchen” takes me some seconds; “I want to talk to a person” gets somebody of our team; “Call me” asks for you " +
			"yourself; “Goodbye” closes the conversation.",
		welcome:  "You're welcome. Enjoy your noodles!",
		greeting: "Hello, this is Noodle Bar. I can tell you where your order is, what is on the menu, what is in it, and when we are open. Say help to see what else there is.",
		unclear:  "I didn't get that. I can tell you where your order is, what is on the menu, what is in it, and when we are open; say help for more.",
	}
}

func german() phrases {
	return phrases{
		stage:            map[Stage]string{Cooking: "in der Pfanne", OnItsWay: "unterwegs", Delivered: "zugestellt"},
		statusShort:      "Bestellung %s ist %s, Ankunft %s.",
		status:           "Bestellung %s ist %s.",
		statusLong:       "Deine Bestellung %s (%s) ist %s.",
		due:              "Sie sollte um %s bei dir sein.",
		withRider:        "%s bringt sie und sollte um %s bei dir sein.",
		arrived:          "Sie wurde um %s übergeben.",
		unknownOrder:     "Eine Bestellung %s finde ich nicht. Die Nummer hat vier Ziffern und steht in der Bestätigung, etwa 1042.",
		whichOrder:       "Welche Bestellung soll storniert werden? Bitte nenne mir die Nummer, etwa 1042.",
		cancelCall:       "Bestellung %s wird gerade gekocht. Stornieren kann ich sie nur, wenn feststeht, dass es deine ist: Bitte ruf in den nächsten zehn Minuten unter 030 555 0142 an.",
		cancelKitchen:    "Bestellung %s wird schon gekocht, anhalten kann sie nur noch die Küche: Bitte ruf in den nächsten zehn Minuten unter 030 555 0142 an.",
		cancelTooLate:    "Bestellung %s ist schon %s und kann nicht mehr storniert werden. Stimmt etwas nicht, ruf unter 030 555 0142 an, wir bringen das in Ordnung.",
		signInForOrders:  "Um deine Bestellungen nachzusehen, musst du bei deinem Noodle-Bar-Konto angemeldet sein und mir das Lesen erlaubt haben. Mit der Nummer einer Bestellung, etwa 1042, sage ich dir sofort, wie weit sie ist.",
		noOrders:         "Von dir gibt es heute keine Bestellung.",
		signInForAddress: "Für deine Lieferadresse musst du bei deinem Noodle-Bar-Konto angemeldet sein, mit der Berechtigung „addresses“.",
		missingScope:     "Du bist angemeldet, aber mir fehlt die Berechtigung „%s“, die es dafür braucht. Bitte melde dich neu an und setze dort das Häkchen.",
		address:          "Wir liefern an: %s.",
		addressChanged:   "Erledigt: Ab der nächsten Bestellung liefern wir an %s.",
		whichAddress:     "Wie lautet die neue Adresse? Bitte nenne mir Straße, Hausnummer, Postleitzahl und Ort.",
		allergens:        "%s enthält: %s.",
		noAllergens:      "%s enthält keines der vierzehn Hauptallergene.",
		diets:            "Vegetarisch: %s. Ohne Weizen: %s. Nenne ein Gericht, dann sage ich dir seine Allergene; alles kommt aus einer Küche, Spuren sind möglich.",
		hours:            "Wir haben täglich von 11:30 bis 22:30 Uhr geöffnet, die Küche schließt um 22:00 Uhr.",
		menu:             "Heute gibt es:",
		orderOnSite:      "Bestellt wird vorerst auf unserer Website; ich helfe bei Karte, Allergenen, Öffnungszeiten und deinen Bestellungen.",
		phone:            "Du erreichst uns täglich von 11:30 bis 22:30 Uhr unter 030 555 0142.",
		person:           "Ich hole jemanden aus unserem Team, bitte bleib dran. Du erreichst uns auch unter 030 555 0142.",
		callYou:          "Ich möchte den Kunden selbst etwas fragen. Kann er mit uns sprechen?",
		callReason:       "Wir haben eine Frage zur Bestellung, die nur der Kunde beantworten kann.",
		here:             "Du sprichst schon mit uns: Worum geht es?",
		kitchen:          "Ich habe in der Küche gefragt: Dort ist eine Hand frei, eine neue Bestellung dauert etwa zehn Minuten.",
		story:            "Alles wird frisch gekocht, und die Brühe zieht über Nacht.",
		goodbye:          "Auf Wiedersehen, und lass es dir schmecken!",
		help: "Zum Beispiel: „Wo ist meine Bestellung?“ braucht dein Konto, also bitte ich dich um die Anmeldung; „Erzähl mir etwas über " +
			"die Karte“ kommt Stück für Stück; „Frag die Küche“ dauert einige Sekunden; „Ich möchte mit einem Menschen sprechen“ holt " +
			"jemanden aus unserem Team; „Ruf mich an“ bittet um dich selbst; „Auf Wiedersehen“ schließt das Gespräch.",
		welcome:  "Gern! Lass es dir schmecken.",
		greeting: "Hallo, hier ist Noodle Bar. Ich weiß, wo deine Bestellung ist, was auf der Karte steht, was drin ist und wann wir geöffnet haben. Sag „Hilfe“, dann siehst du, was es sonst gibt.",
		unclear:  "Das habe ich nicht verstanden. Ich weiß, wo deine Bestellung ist, was auf der Karte steht, was drin ist und wann wir geöffnet haben; „Hilfe“ zeigt mehr.",
	}
}
