import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import org.verapdf.gf.foundry.VeraGreenfieldFoundryProvider;
import org.verapdf.pdfa.Foundries;
import org.verapdf.pdfa.PDFAParser;
import org.verapdf.pdfa.PDFAValidator;
import org.verapdf.pdfa.flavours.PDFAFlavour;
import org.verapdf.pdfa.results.TestAssertion;
import org.verapdf.pdfa.results.ValidationResult;

/** Reads lines "flavour file"; answers with a verdict, the rules that are broken and a blank line. */
public class ConformanceCheck {
  public static void main(String[] arguments) throws Exception {
    VeraGreenfieldFoundryProvider.initialise();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] request = line.split(" ", 2);
      PDFAFlavour flavour = PDFAFlavour.byFlavourId(request[0]);
      try (FileInputStream file = new FileInputStream(request[1]);
          PDFAParser parser = Foundries.defaultInstance().createParser(file, flavour);
          PDFAValidator validator =
              Foundries.defaultInstance().createValidator(flavour, false)) {
        ValidationResult result = validator.validate(parser);
        System.out.println((result.isCompliant() ? "pass " : "fail ") + flavour.getId());
        for (TestAssertion each : result.getTestAssertions()) {
          if (each.getStatus() == TestAssertion.Status.FAILED) {
            System.out.println(
                each.getRuleId().getClause() + "-" + each.getRuleId().getTestNumber());
          }
        }
      } catch (Exception problem) {
        System.out.println("error " + problem.toString().replaceAll("\\s+", " "));
      }
      System.out.println();
      System.out.flush();
    }
  }
}
